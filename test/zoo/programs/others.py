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


FOREST = "library(randomForest); n <- 2000; x <- matrix(rnorm(n*20), n); y <- factor(x[,1]*x[,2]+x[,3] > 0); repeat { randomForest(x, y, ntree=5); cat('forest\\n') }"
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
}


def main():
    command, pattern = PROGRAMS[sys.argv[1]]()
    log, match = zoolog.Log(), re.compile(pattern)
    scale = 10 if sys.argv[1] == "fasttext" else 1
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
