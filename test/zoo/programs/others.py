"""Runs a program of others on data that it makes, and tells the program's own progress as a step log.

The truth is what the program prints on a terminal: a step is a match of its pattern, or, where that
has a group, the number in it has grown by one. A program that ends is run again, and goes on counting."""

import os
import pty
import random
import re
import sys

import zoolog

random.seed(1)
WORDS = [f"w{i}" for i in range(2000)]


def write(path, lines):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in lines)
    return path


def sparse(rows, columns):
    """Rows of two classes in the format of LIBSVM."""
    lines = []
    for _ in range(rows):
        x = [random.gauss(0, 1) for _ in range(columns)]
        y = 1 if x[0] * x[1] + x[2] + random.gauss(0, 1) > 0 else -1
        lines.append(f"{y:+d} " + " ".join(f"{i + 1}:{v:.3f}" for i, v in enumerate(x)))
    return write("/tmp/sparse", lines)


def labelled(documents):
    """Documents of 40 words with a label, as fastText reads them."""
    return write("/tmp/labelled", (f"__label__{random.randrange(8)} " + " ".join(random.choices(WORDS, k=40)) for _ in range(documents)))


def arff(rows, columns):
    """Points in a sphere or around it, with noise: boosting goes on for ever."""
    head = ["@relation r"] + [f"@attribute a{i} numeric" for i in range(columns)] + ["@attribute c {in,out}", "@data"]
    points = ([random.gauss(0, 1) for _ in range(columns)] for _ in range(rows))
    lines = [",".join([f"{x:.3f}" for x in p] + ["out" if sum(x * x for x in p) + random.gauss(0, 3) > columns else "in"]) for p in points]
    return write("/tmp/data.arff", head + lines)


def atoms():
    """A Lennard-Jones melt of 32,000 atoms."""
    return write("/tmp/melt", """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 20 0 20 0 20
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
thermo 2
run 1000000""".splitlines())


def mutated(text, letters, share):
    """A text of which a share of letters is drawn anew."""
    return "".join(random.choice(letters) if random.random() < share else c for c in text)


def genome(letters=200000):
    return "".join(random.choices("ACGT", k=letters))


def reads(of, count, length):
    """Stretches of a genome with errors, as a sequencer reads them."""
    lines = []
    for i in range(count):
        at = random.randrange(len(of) - length)
        lines += [f">r{i}", mutated(of[at:at + length], "ACGT", 0.05)]
    return write("/tmp/reads", lines)


def reference(of):
    return write("/tmp/reference", [">c1", of])


def alignment(taxa, sites):
    """Descendants of one sequence, each of one of those before."""
    all_ = ["".join(random.choices("ACGT", k=sites))]
    while len(all_) < taxa:
        all_.append(mutated(random.choice(all_), "ACGT", 0.1))
    return write("/tmp/alignment", [line for i, s in enumerate(all_) for line in (f">t{i}", s)])


def proteins(path, count):
    """Descendants of a few proteins."""
    letters = "ACDEFGHIKLMNPQRSTVWY"
    first = ["".join(random.choices(letters, k=300)) for _ in range(10)]
    return write(path, [line for i in range(count) for line in (f">p{i}", mutated(first[i % 10], letters, 0.5))])


def boosted():
    """What XGBoost's own command reads."""
    return write("/tmp/boost.conf", ["booster=gbtree", "objective=reg:squarederror", "max_depth=6", "nthread=2", "num_round=100000", "save_period=0",
        f'data="{sparse(20000, 40)}?format=libsvm"', 'eval[train]="/tmp/sparse?format=libsvm"', "model_out=/tmp/model"])


def characters():
    """A recurrent network of darknet's, and a text."""
    write("/tmp/text", (" ".join(random.choices(WORDS, k=12)) for _ in range(5000)))
    return write("/tmp/characters.cfg", """[net]
batch=16
time_steps=16
inputs=256
learning_rate=0.01
momentum=0.9
decay=0.0001
policy=constant
max_batches=1000000
[rnn]
batch_normalize=0
output=128
hidden=128
activation=leaky
[connected]
output=256
activation=leaky
[softmax]
[cost]
type=sse""".splitlines())


def spheres():
    """A scene of glass balls above a mirror."""
    balls = [f"sphere {{ <{random.uniform(-4, 4):.2f}, {random.uniform(0, 4):.2f}, {random.uniform(0, 6):.2f}>, 0.6 pigment {{ rgbt <0.9, 1, 0.9, 0.8> }} finish {{ reflection 0.2 specular 0.8 }} interior {{ ior 1.5 }} }}" for _ in range(40)]
    return write("/tmp/scene.pov", ["#version 3.7;", "global_settings { assumed_gamma 1 max_trace_level 10 }", "camera { location <0, 2, -9> look_at <0, 1.5, 0> }",
        "light_source { <10, 20, -10> rgb 1 }", "plane { y, -1 pigment { checker rgb 1 rgb 0.2 } finish { reflection 0.3 } }"] + balls)


def shell(line):
    return ["sh", "-c", line]


FOREST = "library(randomForest); n <- 2000; x <- matrix(rnorm(n*20), n); y <- factor(x[,1]*x[,2]+x[,3] > 0); repeat { randomForest(x, y, ntree=5); cat('forest\\n') }"
NNET = "library(nnet); n <- 1000; x <- matrix(rnorm(n*20), n); y <- x[,1]*x[,2]+x[,3]; repeat { nnet(x, y, size=20, linout=TRUE, maxit=200, MaxNWts=5000) }"
BOOST = 'library(gbm); n <- 20000; d <- data.frame(matrix(rnorm(n*10), n)); d$y <- d$X1*d$X2+rnorm(n); repeat { gbm(y~., data=d, distribution="gaussian", n.trees=3, interaction.depth=4); cat("round\\n") }'

# name: the command, and what a step is in what it prints
PROGRAMS = {
    "liblinear": lambda: (["liblinear-train", "-s", "0", "-e", "1e-12", sparse(20000, 60), "/tmp/model"], rb"iter +\d+ "),
    "libsvm": lambda: (["svm-train", "-c", "100", "-e", "1e-9", sparse(3000, 20), "/tmp/model"], rb"(?<![0-9])[.*](?![0-9])"),
    "fasttext": lambda: (["fasttext", "supervised", "-input", labelled(4000), "-output", "/tmp/model", "-thread", "2", "-epoch", "400", "-dim", "60"], rb"Progress: +(\d+\.\d)%"),
    "weka": lambda: (["java", "-cp", "/usr/share/java/weka.jar", "weka.classifiers.meta.AdaBoostM1", "-D", "-I", "100000", "-no-cv", "-t", arff(20000, 10), "-W", "weka.classifiers.trees.DecisionStump"], rb"error rate"),
    "rforest": lambda: (["Rscript", "-e", FOREST], rb"forest\n"),
    "rboost": lambda: (["Rscript", "-e", BOOST], rb"round"),
    "lammps": lambda: (["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "lmp", "-in", atoms()], rb"(?m)^ +\d+ +\d+\.\d+ +-?\d"),
    "ffmpeg": lambda: (["ffmpeg", "-hide_banner", "-nostdin", "-stats_period", "0.2", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30", "-c:v", "libx264", "-threads", "2", "-f", "null", "-"], rb"frame= *(\d+)"),
    "brain": lambda: (["node", "/npm/workers.js"], rb"iteration"),
    "tfjs": lambda: (["node", "/npm/tfjs.js"], rb"epoch"),
    "perlfann": lambda: (["perl", "/zoo/fann.pl"], rb"epoch"),
    "godeep": lambda: (["/zoo/godeep-bin"], rb"(?m)^(\d+) +\S+s "),
    "torchrun": lambda: (["python3", "-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1", "--tee", "1", "--log_dir", "/tmp/log", "--master_port", "29511", "/zoo/ddp.py"], rb"step"),
    "povray": lambda: (shell(f"while :; do povray +I{spheres()} +W120 +H90 +WT2 -D -F >/tmp/log 2>&1 && echo picture || exit; done"), rb"picture\n"),
    "magick": lambda: (shell("while :; do convert -size 400x400 plasma:fractal -blur 0x3 -resize 50% null: && echo image || exit; done"), rb"image\n"),
    "iqtree": lambda: (["iqtree2", "-s", alignment(20, 500), "-m", "GTR+G", "-T", "2", "-ninit", "10", "-nstop", "100000", "-redo", "-pre", "/tmp/iqtree"], rb"Iteration (\d+) /"),
    "phmmer": lambda: (["phmmer", "--cpu", "2", "--noali", proteins("/tmp/queries", 500), proteins("/tmp/proteins", 5000)], rb"(?m)^Query:"),
    "minimap": lambda: (shell(f"minimap2 -x ava-ont -t 2 -K 200k {reads(genome(), 1500, 2000)} /tmp/reads >/dev/null"), rb"mapped \d+ sequences"),
    "bwa": lambda: (shell(f"bwa index {reference(of := genome())} 2>/dev/null; bwa mem -t 2 -K 200000 /tmp/reference {reads(of, 20000, 150)} >/dev/null"), rb"Processed \d+ reads"),
    "xgbcli": lambda: (["xgboost", boosted()], rb"\[(\d+)\]"),
    "darknet": lambda: (shell(f"mkdir -p /home/pjreddie/backup && exec darknet rnn train {characters()} -file /tmp/text"), rb"(?m)^(\d+): "),
    "rnnet": lambda: (["Rscript", "-e", NNET], rb"iter"),
    "stockfish": lambda: (["/usr/games/stockfish", "bench", "64", "2", "13"], rb"Position: (\d+)/"),
}
SCALE = {"fasttext": 10}  # steps in one of what the number counts


def main():
    command, pattern = PROGRAMS[sys.argv[1]]()
    log, match = zoolog.Log(), re.compile(pattern)
    scale = SCALE.get(sys.argv[1], 1)
    while True:
        child, terminal = pty.fork()
        if child == 0:
            os.execvp(command[0], command)
        rest, last = b"", 0
        while True:
            try:
                read = os.read(terminal, 65536)
            except OSError:
                read = b""
            if not read:
                break
            rest += read.replace(b"\r", b"\n")
            end = 0
            for found in match.finditer(rest):
                end = found.end()
                number = round(scale * float(found[1])) if found.groups() else last + 1
                for _ in range(last, number):
                    log.step()
                last = max(last, number)
            rest = rest[max(end, len(rest) - 200):]
        os.close(terminal)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{command[0]} failed: {rest.decode(errors='replace')}")


main()
