"""Finds what was meant by misspelt names of ports, with Python's difflib."""

import difflib

from longshore.worker import Call, Worker

PORTS = """Aarhus Algeciras Alexandria Antwerp Barcelona Bremerhaven Busan Callao Chittagong Colombo Dakar
Durban Felixstowe Gdansk Genoa Gioia Tauro Gothenburg Guangzhou Haifa Hamburg Helsinki Istanbul Jakarta Karachi
Klaipeda Lagos Lisbon Livorno Manila Marseille Mombasa Mumbai Nagoya Ningbo Oakland Odesa Osaka Piraeus Qingdao
Riga Rotterdam Santos Savannah Shanghai Singapore Tallinn Tangier Trieste Valencia Vancouver Yokohama""".split()
BERTHS = [f"{port}, berth {number}" for port in PORTS for number in range(1, 41)]

worker = Worker()


@worker.operation("find", idempotent=True)
def find(names: list[str], call: Call) -> dict:
    """The port that each name comes closest to."""
    found = {}
    for number, name in enumerate(names, 1):
        call.check()
        closest = difflib.get_close_matches(f"{name}, berth 1", BERTHS, n=1, cutoff=0.3)
        found[name] = closest[0].split(",")[0] if closest else "?"
        call.progress({"done": number, "of": len(names)})
    return {"text": ", ".join(f"{name} → {port}" for name, port in found.items())}


worker.run()
