"""The known name that an unknown one was probably meant to be."""

from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean, nearest, nearest_names

NAMES = ["train_batch_size", "lr", "Gamma", "num_env_runners"]


def test_the_nearest_name_is_found_whatever_its_case():
    assert nearest("train_bach_size", NAMES) == "train_batch_size"
    assert nearest("gamma", NAMES) == "Gamma"


def test_nothing_is_found_where_nothing_looks_similar():
    assert nearest("entropy", NAMES) is None
    assert did_you_mean("entropy", NAMES) == ""


def test_names_need_not_be_texts():
    assert nearest("agent11", [1, "agent_11"]) == "agent_11"
    assert did_you_mean("12", [12, 500]) == " Did you mean 12?"


def test_the_question_is_formed_as_the_sentence_needs_it():
    assert did_you_mean("lrr", NAMES) == " Did you mean 'lr'?"
    assert did_you_mean("lrr", NAMES, IN_BRACKETS) == " (did you mean 'lr'?)"


def test_several_names_come_nearest_first_and_in_the_same_order_whatever_the_set():
    names = ["alpha_1", "alpha_2", "alpha_3", "beta"]
    expected = nearest_names("alpha", names, most=3)
    assert sorted(expected) == names[:3]
    assert nearest_names("alpha", set(names), most=3) == expected
    assert nearest_names("alpha", names[::-1], most=2) == expected[:2]


def test_how_similar_a_name_has_to_be_can_be_chosen():
    assert nearest("num_envs", NAMES) == "num_env_runners"
    assert nearest("num_envs", NAMES, similarity=0.9) is None


def test_names_that_differ_in_case_only_are_all_known_and_the_equal_case_comes_first():
    names = ["LR", "lr", "Lr", "gamma"]
    for name in names:
        assert nearest(name, names) == name
    assert nearest("GAMA", ["gamma", "GAMMA"]) == "GAMMA"
    assert nearest("gama", ["gamma", "GAMMA"]) == "gamma"
    assert set(nearest_names("lr", names, most=3)) == {"LR", "Lr", "lr"}
    assert nearest_names("lr", names, most=2)[0] == "lr"
    assert nearest_names("lr", ["lr", "lr"], most=2) == ["lr"]
