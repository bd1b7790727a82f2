"""The lab: experiments that kill, freeze, cut off and restart things, on anybody's installation.

An optional app and a guest: of the package it uses what any project may use.
"""
