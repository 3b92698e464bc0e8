"""Golden episodes of several agents: what an env answers, step by step, with every listed number.

Observations are small ints: those of A are 0, 1, 2, …, those of B 20, 21, …, those of C 40, 41, …
Actions are 5 for the first of an agent, 6 for the second, and so on. Each agent's module gives the
extra output `logp`, which is minus the number of its action.
"""

from trainer import MultiAgentEpisode
from trainer.envs import AnswerChecks, EnvAgents
from trainer.episodes.nested import copied
from trainer.testing import AgentScript, ScriptedStep

FIRST_ACTION = 5


def step(observations=None, rewards=None, *, terminated="", truncated="", infos=None):
    """One answer of an env; flags are given as letters, "*" for all."""
    names = {"*": "__all__"}
    return ScriptedStep(
        dict(observations or {}),
        dict(rewards or {}),
        {names.get(letter, letter): True for letter in terminated},
        {names.get(letter, letter): True for letter in truncated},
        dict(infos or {}),
    )


G1 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0}),
        step({"A": 1, "B": 20}, {"A": 1.0, "B": 5.0}),
        step({"A": 2, "B": 21}, {"A": 1.0, "B": 2.0}),
        step({"A": 3, "B": 22}, {"A": 1.0, "B": 3.0}, terminated="*"),
    ],
)
G2 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0, "B": 20}),
        step({"A": 1, "B": 21}, {"A": 1.0, "B": -1.0}, terminated="B"),
        step({"A": 2}, {"A": 1.0}),
        step({"A": 3}, {"A": 1.0}, terminated="A"),
    ],
)
G3 = AgentScript(("A", "B"), [*G2.steps[:2], step({"A": 2, "B": 22}, {"A": 1.0}), G2.steps[3]])
G4 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0, "B": 20}),
        step({"A": 1}, {"A": 1.0, "B": 0.5}),
        step({"A": 2}, {"A": 1.0, "B": 0.25}),
        step({"A": 3, "B": 21}, {"A": 1.0, "B": 1.0}),
        step({"A": 4, "B": 22}, {"A": 1.0, "B": 2.0}, truncated="*"),
    ],
)
G6 = AgentScript(
    ("O", "X"),
    [
        step({"X": 0}),
        step({"O": 20}),
        step({"X": 1}),
        step({}, {"X": 1.0, "O": -1.0}, terminated="*"),
    ],
)
G7 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0, "B": 20}),
        step({"A": 1, "B": 21}, {"A": 1.0, "B": 1.0}),
        step({"A": 2, "B": 22}, {"A": 1.0, "B": 1.0}, truncated="AB"),
    ],
)
G8 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0, "B": 20}),
        step({"A": 1, "B": 21}, {"A": 1.0, "B": 1.0}, terminated="A"),
        step({"B": 22}, {"B": 1.0}, truncated="B"),
    ],
)
G9 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0}),
        step({"A": 1}, {"A": 1.0}, terminated="A"),
        step({"B": 20}),
        step({"B": 21}, {"B": 2.0}, terminated="B"),
    ],
)
G10 = AgentScript(
    ("A",),
    [step(), step(), step({"A": 0}), step({"A": 1}, {"A": 1.0}, terminated="*")],
)
G11 = AgentScript(
    ("A", "B"),
    [*G2.steps[:3], step({"A": 3}, {"A": 1.0, "B": 4.0}, terminated="A")],
)
G12 = AgentScript(("A", "B"), [*G4.steps[:3], step({"A": 3}, {"A": 1.0}, truncated="*")])
G13 = AgentScript(("A", "B"), [*G4.steps[:3], step({"A": 3}, {"A": 1.0}, terminated="*")])
G14 = AgentScript(
    ("A", "B"),
    [
        step({"A": 0}),
        step({"A": 1, "B": 20}, {"A": 1.0, "B": 2.0}, terminated="B"),
        step({"A": 2}, {"A": 1.0}, terminated="*"),
    ],
)
G15 = AgentScript(
    ("A",),
    [
        step({"A": 0}, infos={"__common__": {"w": 1}}),
        step({"A": 1}, {"A": 1.0}, infos={"__common__": {"w": 2}, "A": {"k": 3}}),
    ],
)
G16 = AgentScript(
    (1, 2),
    [
        step({1: 0, 2: 20}),
        step({1: 1, 2: 21}, {1: 1.0, 2: 2.0}),
        step({1: 2, 2: 22}, {1: 1.0, 2: 2.0}),
        step({1: 3, 2: 23}, {1: 0.5, 2: 0.5}),
        step({1: 4, 2: 24}, {1: 0.5, 2: 0.5}, terminated="*"),
    ],
)
G17 = AgentScript(
    ("A", "B", "C"),
    [
        step({"A": 0, "B": 20, "C": 40}),
        *(
            step({"A": t, "B": 20 + t, "C": 40 + t}, {"A": 1.0, "B": 1.0, "C": 1.0})
            for t in range(1, 20)
        ),
    ],
)

GOLDEN = {
    "G1": G1,
    "G2": G2,
    "G4": G4,
    "G6": G6,
    "G7": G7,
    "G8": G8,
    "G9": G9,
    "G10": G10,
    "G11": G11,
    "G12": G12,
    "G13": G13,
    "G14": G14,
    "G15": G15,
    "G16": G16,
    "G17": G17,
}
"""Those that an env may play; G3 breaks the contract, G5 is G4 in two chunks."""


def started(script, **settings):
    """An episode that was reset as the script says."""
    episode = MultiAgentEpisode("golden", possible_agents=script.agents, **settings)
    first = script.steps[0]
    episode.add_env_reset(first.observations, first.infos)
    return episode


def play_step(episode, answer):
    """Lets those act that owe an action, and adds what the env answers."""
    owing = episode.get_agents_to_act()
    numbers = {agent: _num_actions(episode, agent) for agent in owing}
    episode.add_env_step(
        answer.observations,
        {agent: FIRST_ACTION + number for agent, number in numbers.items()},
        answer.rewards,
        answer.infos,
        terminateds=answer.terminateds,
        truncateds=answer.truncateds,
        extra_model_outputs={agent: {"logp": -float(n)} for agent, n in numbers.items()},
    )


def _num_actions(episode, agent):
    return episode.agent_episodes[agent].t + (agent in episode.hanging)


def played(script, stop=None, **settings):
    """The script's episode up to env step `stop`, in one chunk."""
    episode = started(script, **settings)
    for answer in script.steps[1 : None if stop is None else stop + 1]:
        play_step(episode, answer)
    return episode


def chunks_of(script, cuts, *, lookback=0, **settings):
    """The chunks of the script's episode, cut after the given env steps."""
    episode = started(script, **settings)
    for env_t, answer in enumerate(script.steps):
        if env_t:
            play_step(episode, answer)
        if env_t in cuts and not episode.is_done:
            successor = episode.cut(lookback)
            yield episode
            episode = successor
    yield episode


def rows(episode):
    """{agent: its completed rows (observation, action, reward, next observation)}."""
    answer = {}
    for agent, own in episode.agent_episodes.items():
        seen = list(own.get_observations())
        columns = zip(seen, own.get_actions(), own.get_rewards(), seen[1:], strict=False)
        answer[agent] = [tuple(row) for row in columns]
    return answer


def rows_of_all(chunks):
    """The rows of all chunks, one after the other; agents without any are left out."""
    found = {}
    for chunk in chunks:
        for agent, own in rows(chunk).items():
            if own:
                found.setdefault(agent, []).extend(own)
    return found


def ends(episode):
    """{agent: "T", "U" or ""}: how its own episode ended."""
    return {
        agent: "T" * own.is_terminated + "U" * own.is_truncated
        for agent, own in episode.agent_episodes.items()
    }


def random_script(rng):
    """A script in which agents come late, wait, end at any time, and are paid at any time."""
    agents = rng.sample([0, 3, 10, "a", "b", "B2", "z"], rng.randint(1, 4))
    state = dict.fromkeys(agents, "absent")
    numbers = dict.fromkeys(agents, 0)
    steps = [_random_step(rng, state, numbers, t=0)]
    for t in range(1, rng.randint(1, 12) + 1):
        steps.append(_random_step(rng, state, numbers, t=t))
        if rng.random() < 0.06:
            flags = rng.choice(["*", "-", "*-"])
            if "*" in flags:
                steps[-1].terminateds["__all__"] = True
            if "-" in flags:
                steps[-1].truncateds["__all__"] = True
            break
        if all(each in ("ended", "gone") for each in state.values()):
            break
    return AgentScript(agents, steps)


def _random_step(rng, state, numbers, *, t):
    now = ScriptedStep({}, {}, {}, {}, {})
    seen = now.observations
    for agent in rng.sample(list(state), len(state)):
        came = {"absent": 0.5, "running": 0.6}.get(state[agent], 0.0)
        is_seen = rng.random() < came
        if is_seen:
            seen[agent] = numbers[agent] = numbers[agent] + 1
            state[agent] = "running"
        if t and rng.random() < (0.15 if state[agent] == "ended" else 0.7):
            now.rewards[agent] = rng.choice([0.1, -0.3, 1e-17, 1.0, rng.gauss(0.0, 1e3)])
        if t:
            _flag(rng, now, agent, state)
        if rng.random() < 0.2:
            now.infos[agent] = {"t": t}
    if rng.random() < 0.2:
        now.infos["__common__"] = {"all": t}
    return now


def _flag(rng, now, agent, state):
    chance = {"running": 0.1, "absent": 0.02}.get(state[agent], 0.3)
    if rng.random() >= chance:
        return
    terminated, truncated = rng.choice([(True, False), (False, True), (True, True)])
    now.terminateds[agent], now.truncateds[agent] = terminated, truncated
    state[agent] = {"running": "ended", "absent": "gone"}.get(state[agent], state[agent])


def drive(env, checks, act, *, seed=0, most_steps=10_000):
    """One episode of an env, played as a runner plays it: `act(agent, own step)` chooses."""
    agents = checks.agents
    episode = MultiAgentEpisode(
        "driven",
        possible_agents=agents.ids,
        observation_space=agents.observation_spaces,
        action_space=agents.action_spaces,
    )
    episode.add_env_reset(*checks.reset(env.reset(seed=seed)))
    while not episode.is_done and episode.env_t < most_steps:
        owing = episode.get_agents_to_act()
        chosen = {agent: act(agent, episode.agent_episodes[agent].t) for agent in owing}
        handed = {agent: copied(action) for agent, action in chosen.items()}
        answer = checks.step(env.step(handed), episode)
        observations, rewards, terminateds, truncateds, infos = answer
        episode.add_env_step(
            observations, chosen, rewards, infos, terminateds=terminateds, truncateds=truncateds
        )
        checks.check_progress(episode)
    episode.validate()
    return episode


def checks_of(env, **settings):
    """The checks of a runner for this env."""
    return AnswerChecks(EnvAgents.of(env, name="env"), name="env", copied=copied, **settings)
