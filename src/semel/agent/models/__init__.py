"""Models behind the agent loop's protocol, one file an SDK. It is imported when a model is made."""
