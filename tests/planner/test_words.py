from hexcloud.planner.words import mend_in_words, rule_in_words


def test_every_rule_is_a_sentence_with_the_name_it_is_about() -> None:
    assert rule_in_words("quota[gcp/GPUS]") == "the account's quota gcp/GPUS is used up"
    assert rule_in_words("pools") == "the plan may not use more different offers"
    assert rule_in_words("unheard_of[x]") == "unheard_of[x]"


def test_a_rule_about_all_of_a_kind_names_none() -> None:
    assert rule_in_words("survive") == "enough rollout must remain when any one failure domain is lost"
    assert rule_in_words("stock") == "no more machines can be had"
    assert rule_in_words("stock[aws/x]") == "no more machines of aws/x can be had"


def test_a_mend_names_the_dial() -> None:
    assert "max_pools" in mend_in_words("pools")
    assert "survival_share" in mend_in_words("survive[aws/us-east-1]")
    assert mend_in_words("unheard_of") == ""
    assert rule_in_words("require") == "the plan must hold one of the offers that were asked for"
