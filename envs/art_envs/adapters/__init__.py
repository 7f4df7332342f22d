"""Environments of other libraries, one file each; a library is imported when its env is used.

    reasoning_gym_env  puzzles with an answer that is checked, a hundred data sets
    gymnasium_env      small worlds of discrete actions: FrozenLake, Taxi, Blackjack, CliffWalking
    textarena_env      games in words, of one player or against random moves
    openenv_env        servers of OpenEnv
    inspect_env        samples and scorers of Inspect
    verifiers_env      tasksets of verifiers 0.4 and environments of 0.1 to 0.3, with their rewards
    tau2_env           customer service of tau2-bench, with a customer or as tickets

`art envs tasks NAME` lists what each of them has.
"""
