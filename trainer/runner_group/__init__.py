"""The asking side of env runners, in the main process: group, rounds, records of runners."""
