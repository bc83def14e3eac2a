"""What can answer: how long does this candidate take?"""
