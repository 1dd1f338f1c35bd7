"""A hub that serves a folder of skills and a folder of prompts."""

from pathlib import Path

from waypost import Hub

here = Path(__file__).parent
hub = Hub("library", version="1.0.0")
hub.add_skills(here / "knowledge")
hub.add_prompts(here / "prompts")

if __name__ == "__main__":
    hub.run()
