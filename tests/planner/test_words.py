from hexcloud.planner.words import rule_in_words


def test_rules_are_told_in_words() -> None:
    assert rule_in_words("stock[aws/x]") == "no more machines of aws/x can be had"
    assert rule_in_words("survive[aws/us-east-1]") == "enough rollout must remain when aws/us-east-1 is lost"
    assert rule_in_words("something_new") == "something_new"
