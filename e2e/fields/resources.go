package fields

import "strings"

// resourceRows are about the resources of containers.
func resourceRows() []Row {
	const (
		limits, requests, resize = c + "resources.limits", c + "resources.requests", c + "resizePolicy[]."
		// cgroup looks for the first word in a file of the container's cgroup: its name in version 2, then 1.
		cgroup = "cgroup() { cat /sys/fs/cgroup/$2 /sys/fs/cgroup/$3 2> /dev/null | grep -q \"^$1\"; }; "
	)
	return []Row{
		{
			Name: "limits", Fields: []string{limits + "{cpu}", limits + "{memory}"},
			Container: "resources: {limits: {cpu: 500m, memory: 32Mi}}",
			Script:    cgroup + "cgroup 50000 cpu.max cpu/cpu.cfs_quota_us; cgroup 33554432 memory.max memory/memory.limit_in_bytes",
		},
		{
			// 250m are 256 shares, or a weight of 10 (28 in newer runtimes); without it they are 2 and 1.
			Name: "request-cpu", Fields: []string{requests + "{cpu}"}, Container: "resources: {requests: {cpu: 250m}}",
			Script: cgroup + "cgroup 256 none cpu/cpu.shares || cgroup 10 cpu.weight none || cgroup 28 cpu.weight none",
		},
		{
			// The more of the machine's memory a pod asks for, the later its processes are killed for want of memory.
			Name: "request-memory", Fields: []string{requests + "{memory}"}, Container: "resources: {requests: {cpu: 1m, memory: 1Gi}}",
			Script: "[ $(cat /proc/self/oom_score_adj) -lt 997 ]",
		},
		{
			// On a machine without huge pages, or without their controller, the container says what is missing and waits.
			Name: "hugepages", Fields: []string{limits + "{hugepages-*}", requests + "{hugepages-*}"}, Refused: []string{requests + "{hugepages-*}"},
			Otherwise: map[string]any{requests + "{hugepages-*}": "4Mi"},
			Container: "resources: {limits: {memory: 32Mi, hugepages-2Mi: 2Mi}, requests: {hugepages-2Mi: 2Mi}}",
			Cut:       map[string]string{limits + "{hugepages-*}": c + "resources"},
			Script:    cgroup + "cgroup 2097152 hugetlb.2MB.max hugetlb/hugetlb.2MB.limit_in_bytes",
			Check: func(s *Seen) Verdict {
				if w := s.Status("c").State.Waiting; w != nil && strings.Contains(w.Message, "hugepages-2Mi") {
					return Holds
				}
				return ByPhase(s)
			},
		},
		{
			Name: "device", Fields: []string{limits + "{<vendor>/<class>}", requests + "{<vendor>/<class>}"}, Refused: []string{requests + "{<vendor>/<class>}"},
			Otherwise: map[string]any{requests + "{<vendor>/<class>}": 2},
			Cut:       map[string]string{limits + "{<vendor>/<class>}": c + "resources"},
			Container: "resources: {limits: {CDIKIND: 1}, requests: {CDIKIND: 1}}",
			Script:    "[ -n \"$DEVICE\" ]",
		},
		{
			Name: "resizepolicy", Fields: under(resize, "resourceName", "restartPolicy"),
			Otherwise: map[string]any{resize + "resourceName": "cpu", resize + "restartPolicy": "NotRequired"},
			Spec:      "restartPolicy: Always", Script: forever,
			Container: "resources: {limits: {memory: 32Mi}}\nresizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]",
			Edit:      map[string]any{limits + "{memory}": "48Mi"},
			Check: func(s *Seen) Verdict {
				now := s.Status("c")
				if now.Resources == nil || now.Resources.Limits.Memory().String() != "48Mi" || now.State.Running == nil {
					return Undecided
				}
				return verdict(now.RestartCount == 1)
			},
		},
	}
}
