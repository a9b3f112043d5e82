"""Examples at the end of every command's help."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "allometry demo",
        "allometry run notes.txt --budget 10min",
        "allometry fit runs.csv --report page.html",
        "allometry list",
    ),
    "demo": ("allometry demo", "allometry demo --dry-run"),
    "run": (
        "allometry run notes.txt --budget 10min",
        "allometry run moons --family flow --family vae --largest 20K",
        "allometry run embedded --tokens 2M --dry-run",
        "allometry run --command 'python train.py --width {width} --seed {seed}' "
        "--shapes 'width=64,128,256; N=24*width^2' --metric 'val loss ([0-9.]+)'",
    ),
    "status": ("allometry status runs/notes", "allometry status runs/notes --watch"),
    "report": ("allometry report runs/notes", "allometry report runs/notes -o page.html"),
    "fit": (
        "allometry fit runs.csv --form chinchilla",
        "allometry fit runs.csv --n params --d tokens --loss val_loss --report page.html",
        "allometry fit runs.csv --save law.json",
        "allometry fit runs.csv --x params --x experts --y val_loss --cost 'params*experts'",
        "allometry fit runs.csv --x N --x D --form 'E + A/N^alpha + B/D^beta'",
    ),
    "plan": (
        "allometry plan runs.csv --compute 1ZFLOP",
        "allometry plan runs.csv --compute 1e21 --size 7B",
        "allometry plan runs.csv --hardware 64xH100 --price 2.5/h --days 12",
        "allometry plan runs.csv --reach 2.1",
        "allometry plan law.json --compute 1ZFLOP",
        "allometry plan runs.csv --x N --x D --cost gpu_hours --budget 500",
    ),
    "watch": (
        "allometry watch log.csv --total 20000 --schedule cosine",
        "allometry watch train.log --total 5000 --beat 3.28 --follow",
    ),
    "compare": (
        "allometry compare runs.csv --by optimizer --at 1e21",
        "allometry compare runs/adamw runs/muon --report page.html",
        "allometry compare --run adamw.py:study muon.py:study --budget 2h",
    ),
    "next": (
        "allometry next runs.csv --budget 2EFLOP --size 7B --tokens 300B",
        "allometry next runs.csv --pool candidates.csv --target goal.csv --x N --x experts "
        "--cost gpu_hours --budget 500",
        "allometry next --pool finished.csv --target goal.csv --x N --x experts --replay",
    ),
    "serve": ("allometry serve runs.csv", "allometry serve runs/notes --port 8000"),
    "generate": (
        "allometry generate runs/notes --prompt 'The ' --temperature 0.8",
        "allometry generate runs/notes --family lstm --size 20K",
        "allometry generate runs/digits --n 64 -o samples.png",
    ),
    "measure": (
        "allometry measure test.npy samples.npy",
        "allometry measure test.npy samples.npy --only precision --only recall",
        "allometry measure --audit",
    ),
    "export": (
        "allometry export runs/notes --to hf --out notes",
        "allometry export model.safetensors --to gguf --out notes",
    ),
    "mcp": ("allometry mcp", "allometry mcp --root runs"),
    "schema": ("allometry schema", "allometry schema plan"),
    "list": ("allometry list", "allometry list recipes"),
    "construct": ("allometry construct dyck '([])'",),
    "construct universal": (
        "allometry construct universal mean",
        "allometry construct universal sort --delta 0.125",
    ),
    "construct dyck": (
        "allometry construct dyck '([])'",
        "allometry construct dyck --k 3 --depth 4 --page steps.html",
    ),
    "construct turing": ("allometry construct turing 1RB1LB_1LA1RZ --steps 10",),
    "construct program": ("allometry construct program sort bca",),
    "construct generator": (
        "allometry construct generator adder 95+27",
        "allometry construct generator adder --size 2 --save adder --to hf",
    ),
}
"""Example lines by command."""


def epilog(command: str) -> str:
    """The examples of a command in Markdown."""
    return "Examples:\n\n" + "\n\n".join(f"`{line}`" for line in EXAMPLES[command])
