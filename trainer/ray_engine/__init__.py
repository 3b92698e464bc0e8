"""Workers on a Ray cluster: an engine beside the local one, with the same bytes.

    cluster     which cluster is used: the user's, or a local one that is started for us
    place_host  the Ray actor: it keeps one worker process on its machine
    engine      `RayEngine`: places whose workers such actors keep

Ray is an extra, `pip install "local-trainer[ray]"`, and is imported when an engine connects.
"""
