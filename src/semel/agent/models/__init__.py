"""Models behind the agent loop's protocol. An SDK is imported when its model is made, not before."""
