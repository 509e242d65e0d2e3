package identity

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"pgregory.net/rapid"
)

func of(line string) Identity { return Of(start(strings.Fields(line)...), testKey(1)) }

// TestSameJob: two runs of one job, as launchers write them. What differs is of the run.
func TestSameJob(t *testing.T) {
	for name, two := range map[string][2]string{
		"torchrun, rendezvous": {
			"torchrun --nnodes=2 --nproc-per-node=8 --rdzv-id=none_x8k2qq --rdzv-backend=c10d --rdzv-endpoint=gpu-a:29400 train.py --model resnet50",
			"torchrun --nnodes=2 --nproc-per-node=8 --rdzv-id=job-of-ann --rdzv-backend=c10d --rdzv-endpoint=10.0.0.9:29411 train.py --model resnet50"},
		"torchrun, its older spelling": {
			"python -m torch.distributed.run --rdzv_id bright --rdzv_endpoint node17.cluster.local:29400 --node_rank 0 train.py",
			"python -m torch.distributed.run --rdzv_id 4f --rdzv_endpoint node3.cluster.local:29400 --node_rank 1 train.py"},
		"torch.distributed.launch": {
			"python -m torch.distributed.launch --master_addr 10.0.0.7 --master_port 29500 train.py",
			"python -m torch.distributed.launch --master_addr gpu-node-b --master_port 29501 train.py"},
		"dist-url": {"main.py -a resnet50 --dist-url tcp://gpu-a:23456", "main.py -a resnet50 --dist-url tcp://10.0.0.7:29500"},
		"an address in a word of its own": {
			"worker.py tcp://10.0.0.7:29500 http://mlflow-7f8d9c-x2k4j:5000/api", "worker.py tcp://gpu-node-a:29500 http://tracking.team:80/api"},
		"a file to meet at": {"main.py --init_method file:///tmp/tmpab12cd3f/init", "main.py --init_method tcp://h:1"},
		"deepspeed": {
			"deepspeed --hostfile /job/hostfile-a --master_addr worker-0 --master_port 60000 run_clm.py --deepspeed ds_config.json",
			"deepspeed --hostfile /tmp/x/hosts --master_addr worker-7 --master_port 61000 run_clm.py --deepspeed ds_config.json"},
		"deepspeed, as its runner starts ranks": {
			"python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 --master_addr=127.0.0.1 train.py",
			"python -u -m deepspeed.launcher.launch --world_info=eyJhIjogWzBdfQ== --master_addr=gpu-a train.py"},
		"accelerate": {
			"accelerate launch --multi_gpu --main_process_ip 10.0.0.7 --main_process_port 29500 --machine_rank 0 train.py",
			"accelerate launch --multi_gpu --main_process_ip gpu-node-c --main_process_port 29777 --machine_rank 1 train.py"},
		"accelerate, a script made for the run": {"accelerate launch /tmp/tmpab12cd3f.py --bf16", "accelerate launch /tmp/tmp_x8k2__q.py --bf16"},
		"mpirun": {
			"mpirun -np 16 -H gpu-a:8,gpu-b:8 -x MASTER_ADDR=gpu-a -x NCCL_DEBUG=INFO python train.py",
			"mpirun -np 16 -H gpu-x:8,gpu-q:8 -x MASTER_ADDR=gpu-x -x NCCL_DEBUG=INFO python train.py"},
		"mpirun, by files":    {"mpirun --hostfile /a/hosts.one -machinefile /tmp/m1 python train.py", "mpirun --hostfile /b/two -machinefile /tmp/m2 python train.py"},
		"mpirun, a host each": {"mpirun -np 2 -H gpu-a python train.py", "mpirun -np 2 -H gpu-b python train.py"},
		"hosts of a country":  {"train.py --master_addr gpu1.uni.pl", "train.py --master_addr gpu2.uni.pl"},
		"a port by a shell":   {"train.py --master_port $PORT", "train.py --master_port 29500"},
		"horovodrun":          {"horovodrun -np 4 -H server1:2,server2:2 python train.py", "horovodrun -np 4 -H alpha:2,beta:2 python train.py"},
		"ray":                 {"ray start --address=10.0.0.7:6379 --node-ip-address gpu-a --block", "ray start --address=head.ray:6379 --node-ip-address 10.1.1.1 --block"},
		"ray, its sessions": {
			"worker.py --temp-dir=/tmp/ray/session_2026-11-27_10-11-12_123456_17 --redis-address=10.0.0.7:6379 --session-name=session_x",
			"worker.py --temp-dir=/tmp/ray/session_2026-11-28_11-10-09_654321_4242 --redis-address=head:6379 --session-name=other"},
		"hydra":                     {"train.py model=resnet50 hydra.run.dir=outputs/2026-11-27/10-11-12 hydra.job.id=a ++wandb.run_id=x", "train.py model=resnet50 hydra.run.dir=outputs/2026-11-28/01-02-03 hydra.job.id=b7 ++wandb.run_id=qq8"},
		"slurm":                     {"srun --jobid=123 --nodelist=node[1-4] python train.py", "srun --jobid=991 --nodelist=gpu7,gpu9 python train.py"},
		"mlflow":                    {"train.py --run-id 3f2a9bc1d4e5f60718293a4b5c6d7e8f --tracking_uri http://10.0.0.7:5000", "train.py --run-id aaaabbbbccccddddeeeeffff00001111 --tracking_uri http://mlflow.team:5000"},
		"a run's name":              {"run_glue.py --run_name happy-sun-42 --model_name_or_path bert-base-cased", "run_glue.py --run_name silent-moon-7 --model_name_or_path bert-base-cased"},
		"W&B's folder":              {"train.py --resume wandb/run-20261127_101112-1x9kp3qz/files/model.pt", "train.py --resume wandb/run-20261128_090807-q7mmx2ab/files/model.pt"},
		"tempfile.mkdtemp":          {"train.py --out /tmp/tmpab12cd3f/out", "train.py --out /tmp/tmpqwertyui/out"},
		"tempfile in TMPDIR":        {"train.py --out=/scratch/ann/tmp_1b2c3_d", "train.py --out=/scratch/ann/tmpzzzzzzzz"},
		"mktemp":                    {"train.py --out /tmp/tmp.Xk3fQ9zLmA", "train.py --out /tmp/tmp.abcdefghij"},
		"macOS, one user":           {"train.py /var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/tmpab12cd3f", "train.py /var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/tmpxy98zz_1"},
		"torchelastic's own folder": {"agent.py --log /tmp/torchelastic_ab12cd3f/none_x8k2__q1/attempt_0/0/error.json", "agent.py --log /tmp/torchelastic_9z_8y7xw/none_k3jd0s9a/attempt_1/3/error.json"},
		"mktemp with a name":        {"train.py /tmp/launch.Xk3fQ9zLmA /var/tmp/pip-build-1a2b3c", "train.py /tmp/launch.a1B2c3D4e5 /var/tmp/pip-build-9x8y7z"},
		"in a shell's line":         {"-c \"MASTER_ADDR=gpu-a WANDB_RUN_ID=1x9kp3qz python train.py\"", "-c \"MASTER_ADDR=gpu-b WANDB_RUN_ID=happysun python train.py\""},
	} {
		a, b := of(two[0]), of(two[1])
		if !a.Same(b) {
			t.Errorf("%s: two jobs\n%q\n%q", name, shown(two[0]), shown(two[1]))
		}
	}
}

// shown is what is hashed of a line, for who reads that a test failed.
func shown(line string) []string {
	program, _ := normalise(start(strings.Fields(line)...))
	return program
}

// TestOtherJob: what chooses the program differs, and so does the job, wherever it stands.
func TestOtherJob(t *testing.T) {
	words := strings.Fields("resnet50 resnet101 bert-base bert-large llama2-7b llama3-7b vgg16 vgg19 vit_b_16 vit_l_16 t5-small gpt2 gpt2xl qwen2vl r2plus1d_18 r3d_18 " +
		"wav2vec2 data2vec seq2seq pix2pix mixtral8x7b e4m3fn e5m2 imagenet21k imagenet1k efficientnetb0 efficientnetv2 swin2sr yolov8n wmt16ende ResNet50 BertForQA GPT2LMHeadModel " +
		"r2plus1d i2vgenxl k-means tmp_train tmp_evalu tmp_resnet tmp_vgg16 tmp_vgg19 tmpl tmpfs tmp_vit temporal")
	for _, frame := range []string{"train.py --model %", "train.py --model=%", "train.py model=%", "train.py --out /runs/%/ckpt.pt", "train.py /tmp/% x",
		"train.py /tmp/%/out", "%.py", "/tmp/%.py", "tools/%/train.py", "train.py --out runs/2026-11-27/10-11-12/%", "train.py hf://%/main", "train.py s3://bucket/%",
		"train.py --model-id %", "train.py --env-id %", "train.py --dataset_name %", "train.py --experiment_name %", "train.py --name %", "train.py --job_name %",
		"train.py --support % x", "train.py --transport=%", "train.py -h %", "torchrun --rdzv_id abc % --rdzv_backend c10d", "torchrun --rdzv_id=abc %", "mpirun -H a:1,b:1 %",
		"gunicorn --reuse-port app_%:app", "gunicorn --reuse_port %", "x --find-free-port %.py", "x --random-port 3d-%", "x --with-port 3d-%.py", "x --with-port %", "x --check-host %.py", "x --check-host ./run_%.sh",
		"sudo -H %.py", "sudo -H ./%", "mpirun -H a:1,b:1 train.py -H %",
		"serve.py --port --model=%", "serve.py host %", "train.py /data/x-%/tmp/out"} {
		seen := map[string]string{}
		for _, w := range words {
			line := strings.ReplaceAll(frame, "%", w)
			id := of(line)
			if other := seen[id.Job]; other != "" {
				t.Errorf("%q and %q are one job: %q", line, other, shown(line))
			}
			seen[id.Job] = line
		}
	}
	for _, two := range [][2]string{{"tmp_resnet.py", "tmp_gpt2xl.py"}, {"/x/tmp_evaluate.py", "/x/tmp_trainall.py"}, {"--task tmp_resnet", "--task tmp_unetpp"}} {
		if of(two[0]).Same(of(two[1])) {
			t.Errorf("%q are one job", two)
		}
	}
	for _, two := range [][2]string{{"/tmp/models/llama-3_2_1b", "/tmp/models/llama-3_2_3b"}, {"/tmp/fb-wav2vec2", "/tmp/fb-data2vec"}} {
		if a, b := of(two[0]), of(two[1]); slices.Equal(a.Numbers, b.Numbers) {
			t.Errorf("%q are one job without a number that differs", two)
		}
	}
	for _, frame := range []string{"train.py /tmp/x-%", "train.py runs/20261127_101112-%"} {
		if a, b := strings.ReplaceAll(frame, "%", "resnet50"), strings.ReplaceAll(frame, "%", "vit_l_16"); of(a).Same(of(b)) {
			t.Errorf("%q and %q are one job", shown(a), shown(b))
		}
	}
}

// What each library draws is taken out, in share of what it draws: all behind "tmp", and nine of ten elsewhere.
func TestDrawn(t *testing.T) {
	const python, wandb, gnu = "abcdefghijklmnopqrstuvwxyz0123456789_", "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	draw := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		frame, letters string
		size           int
		least          float64
	}{
		{"/tmp/tmp%/out", python, 8, 1},
		{"/data/tmp%", python, 8, 1},
		{"/tmp/tmp.%", gnu, 10, 1},
		{"/tmp/torchelastic_%/x", python, 8, 0.8},
		{"/tmp/job.%", gnu, 10, 0.7},
		{"wandb/run-20261127_101112-%/files", wandb, 8, 0.85},
	} {
		const tries = 20000
		want, out := "", 0
		for range tries {
			id := make([]byte, tc.size)
			for i := range id {
				id[i] = tc.letters[draw.IntN(len(tc.letters))]
			}
			text, _ := Normalise(strings.Replace(tc.frame, "%", string(id), 1))
			if want = collapse(strings.Replace(tc.frame, "%", hole, 1)); strings.Contains(tc.frame, "wandb") {
				want = "wandb/run-" + hole + "/files"
			}
			if text == want {
				out++
			}
		}
		t.Logf("%s: %.3f", tc.frame, float64(out)/tries)
		if float64(out) < tc.least*tries {
			t.Errorf("%s: %d of %d are taken out, want %g", tc.frame, out, tries, tc.least)
		}
	}
}

// A value of the run's own leaves no trace: neither a word nor a number of the identity has it.
func TestPerRunLeavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := rapid.SampledFrom([]string{"--rdzv_id=%", "--master-addr %", "--run-name %", "-H %:8", "hydra.job.id=%", "tcp://%:29500", "MASTER_PORT=%"}).Draw(t, "frame")
		value := rapid.StringMatching(`[a-zA-Z0-9_.]{1,30}`).Filter(func(s string) bool { return !program(s) }) // that would be one behind an option without a value
		line := func(name string) string {
			return "train.py --lr 0.1 " + strings.Replace(frame, "%", value.Draw(t, name), 1) + " --epochs 3"
		}
		one, two := line("one"), line("two")
		a, _ := json.Marshal(of(one))
		if b, _ := json.Marshal(of(two)); string(a) != string(b) {
			t.Fatalf("%q and %q: %s and %s", shown(one), shown(two), a, b)
		}
	})
}

// FuzzOf: whatever a container is made with, its identity holds hashes alone.
func FuzzOf(f *testing.F) {
	f.Add("torchrun --rdzv_id=x8k2 /tmp/tmpab12cd3f/out tcp://h:1", "MODEL=/tmp/tmp.Xk3fQ9zLmA", "/tmp/tmpab12cd3f", "team/train:v3")
	f.Add("--host\x01 = -H \xff", "_MODEL==", "://:", "\x1b[31m")
	f.Fuzz(func(t *testing.T, line, env, source, image string) {
		id := Of(Start{Image: image, Command: []string{line}, Env: []string{env}, Mounts: []runtime.Mount{{Source: source, Target: "/data"}}}, testKey(1))
		if why := id.Valid(); id.Known() && why != "" {
			t.Fatal(why)
		}
		if text, err := json.Marshal(id); err != nil || len(text) > 2500 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	})
}
