"""Old RLlib names in quarantine: small tables and mixins that add no behaviour of their own."""
