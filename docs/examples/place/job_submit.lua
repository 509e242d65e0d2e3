-- Slurm's job_submit plugin: a job that asks for a GPU of any type gets the type that suits it, if one does.
-- The job says what it will run:  sbatch --gres=gpu:1 --comment='trimtab: IMAGE ARG…' job.sh
-- SlurmUser needs the group trimtab-read. slurmctld waits meanwhile, so an answer has two seconds.
local types = { H100 = "h100", A100 = "a100", L4 = "l4" } -- a word of NVIDIA's name: the type in gres.conf
local models = "/etc/slurm/models.jq"

local function quote(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

-- suiting returns the only type on which the job is fast; nil: several are, or nothing is known.
local function suiting(words)
	local line = "timeout 2 trimtab place --json --"
	for word in words:gmatch("%S+") do line = line .. " " .. quote(word) end
	local answer = io.popen(line .. " 2>/dev/null | jq -f " .. quote(models) .. " | jq -r '.[]' 2>/dev/null")
	local found
	for model in answer:lines() do
		for word, type in pairs(types) do
			if (" " .. model .. " "):gsub("[^%w]", " "):find(" " .. word .. " ", 1, true) then
				if found and found ~= type then found = false end
				if found == nil then found = type end
			end
		end
	end
	answer:close()
	return found or nil
end

function slurm_job_submit(job, partitions, uid)
	local words = (job.comment or ""):match("^trimtab:%s*(.+)$")
	local count = (job.tres_per_node or ""):match("^gres:gpu:?(%d*)$")
	if words and count then
		local type = suiting(words)
		if type then
			job.tres_per_node = "gres:gpu:" .. type .. (count ~= "" and ":" .. count or "")
			slurm.log_info("trimtab: %s is for a GPU of type %s", words:gsub("[^%w%p ]", "?"):sub(1, 200), type)
		end
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
