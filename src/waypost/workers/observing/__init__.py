"""Observers: functions that hear of the calls of other functions."""
