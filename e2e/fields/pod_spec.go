package fields

import (
	"os"

	corev1 "k8s.io/api/core/v1"
)

// lifeRows are about the life of a pod as a whole.
func lifeRows() []Row {
	return []Row{
		{
			Name: "restartpolicy", Fields: []string{"spec.restartPolicy"}, Spec: "restartPolicy: Never", Script: "true",
			Check: when(succeeded, func(s *Seen) bool { return s.Status("c").RestartCount > 0 || waits("CrashLoopBackOff")(s) }),
		},
		{
			// It takes three seconds to stop.
			Name: "graceperiod", Fields: []string{"spec.terminationGracePeriodSeconds"}, Remove: true,
			Otherwise: map[string]any{"spec.terminationGracePeriodSeconds": 1},
			Spec:      "{terminationGracePeriodSeconds: 20, volumes: [{name: d, hostPath: {path: DIR}}]}",
			Container: "{volumeMounts: [{name: d, mountPath: /d}], readinessProbe: {exec: {command: [test, -e, /d/set]}, periodSeconds: 1}}",
			Script:    "trap 'sleep 3; echo done > /d/f; exit 0' TERM; touch /d/set; while sleep 0.1; do :; done",
			Check:     func(s *Seen) Verdict { return verdict(s.File("f") == "done") },
		},
		{
			Name: "deadline", Fields: []string{"spec.activeDeadlineSeconds"}, Spec: "activeDeadlineSeconds: 1", Script: "sleep 6",
			Check: endsWith(corev1.PodFailed, "DeadlineExceeded"),
		},
		{
			Name: "readinessgate", Fields: []string{"spec.readinessGates[].conditionType"},
			Cut:  map[string]string{"spec.readinessGates[].conditionType": "spec.readinessGates"},
			Spec: "readinessGates: [{conditionType: example.com/ready}]", Script: forever,
			Check: when(func(s *Seen) bool { return s.Status("c").Ready && !s.Ready() }, (*Seen).Ready),
		},
		{
			// A pod for another system never runs.
			Name: "os", Fields: []string{"spec.os.name"}, Otherwise: map[string]any{"spec.os.name": "windows"}, Refused: []string{"spec.os.name"},
			Spec: "os: {name: linux}", Container: "lifecycle: {stopSignal: SIGUSR1}", Script: "[ $(uname) = Linux ]",
		},
		{Name: "pullsecrets", Fields: []string{"spec.imagePullSecrets[].name"}, By: "TestImagePullSecrets", Marker: "imagePullSecrets"},
		{Name: "priority", Fields: []string{"spec.priority"}, By: "TestPressure", Marker: "priority: 1"},
		{Name: "priorityclass", Fields: []string{"spec.priorityClassName"}, By: "TestPressure"},
		{Name: "preemptionpolicy", Fields: []string{"spec.preemptionPolicy"}, By: "TestPressure", Marker: "preemptionPolicy: Never"},
	}
}

// namespaceRows are about what a pod shares with the machine, and what it has for itself.
func namespaceRows() []Row {
	const sysctls = "spec.securityContext.sysctls[]."
	// Each container tells in which namespace it is.
	shares := func(name, field, spec, kind string, own bool) Row {
		return Row{
			Name: name, Fields: []string{field}, Spec: spec, Script: "readlink /proc/self/ns/" + kind + " > /dev/termination-log",
			Check: func(s *Seen) Verdict {
				host, err := os.Readlink("/proc/self/ns/" + kind)
				if s.Ended() == nil || err != nil {
					return Undecided
				}
				return verdict(s.Ended().ExitCode == 0 && s.Ended().Message != "" && own == (s.Ended().Message != host+"\n"))
			},
		}
	}
	return []Row{
		shares("hostnetwork", "spec.hostNetwork", "hostNetwork: true", "net", false),
		shares("hostpid", "spec.hostPID", "hostPID: true", "pid", false),
		shares("hostipc", "spec.hostIPC", "hostIPC: true", "ipc", false),
		shares("hostusers", "spec.hostUsers", "hostUsers: false", "user", true),
		{
			// The first process is the sandbox's.
			Name: "shareprocesses", Fields: []string{"spec.shareProcessNamespace"}, Spec: "shareProcessNamespace: true",
			Script: "[ $$$$ != 1 ]; tr '\\0' '\\n' < /proc/1/cmdline | grep -qx /pause",
		},
		{
			Name: "sysctl", Fields: under(sysctls, "name", "value"),
			Otherwise: map[string]any{sysctls + "name": "net.ipv4.tcp_keepalive_time", sysctls + "value": "124"},
			Spec:      "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"123\"}]}",
			Script:    "[ $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start) = 123 ]",
		},
	}
}

// nameRows are about names: the pod's own and those it looks up.
func nameRows() []Row {
	const dns = "spec.dnsConfig."
	const own = "dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.1], searches: [row.example], options: [{name: ndots, value: \"7\"}]}"
	return []Row{
		{Name: "hostname", Fields: []string{"spec.hostname"}, Spec: "hostname: other", Script: "[ $(hostname) = other ]"},
		{
			Name: "dns", Fields: append(under(dns, "nameservers[]", "searches[]", "options[].name", "options[].value"), "spec.dnsPolicy"),
			Otherwise: map[string]any{dns + "nameservers[]": []string{"192.0.2.2"}, dns + "options[].name": "timeout"}, Spec: own,
			Script: "has() { [ \"$(grep \"^$1\" /etc/resolv.conf)\" = \"$*\" ]; }\n" +
				"has nameserver 192.0.2.1; has search row.example; has options ndots:7",
		},
		{
			Name: "subdomain", Fields: []string{"spec.subdomain"}, Spec: "{hostname: h, subdomain: d}",
			Script: "grep -q '[^a-z]h.d.default.svc.cluster.local[^a-z]h$' /etc/hosts",
		},
		{
			Name: "fqdn", Fields: []string{"spec.setHostnameAsFQDN"}, Spec: "{hostname: h, subdomain: d, setHostnameAsFQDN: true}",
			Script: "[ $(hostname) = h.d.default.svc.cluster.local ]",
		},
		{
			Name: "hostnameoverride", Fields: []string{"spec.hostnameOverride"}, Spec: "hostnameOverride: any.row.example",
			Script: "[ $(hostname) = any.row.example ]",
		},
		{
			Name: "hostaliases", Fields: []string{"spec.hostAliases[].ip", "spec.hostAliases[].hostnames[]"},
			Otherwise: map[string]any{"spec.hostAliases[].ip": "192.0.2.9", "spec.hostAliases[].hostnames[]": []string{"wrong.example"}},
			Spec:      "hostAliases: [{ip: 192.0.2.8, hostnames: [row.example]}]", Script: "grep -q '^192.0.2.8[^0-9].*row.example' /etc/hosts",
		},
	}
}

// podSecurityRows are about the securityContext that is for all containers.
func podSecurityRows() []Row {
	const s = "spec.securityContext."
	return []Row{
		{
			Name: "pod-runas", Fields: under(s, "runAsUser", "runAsGroup"),
			Spec: "securityContext: {runAsUser: 1000, runAsGroup: 2000}", Script: "[ $(id -u):$(id -g) = 1000:2000 ]",
		},
		{
			Name: "pod-nonroot", Fields: under(s, "runAsNonRoot"), Spec: "securityContext: {runAsNonRoot: true}", Script: "true",
			Check: when(waits("CreateContainerConfigError"), succeeded),
		},
		{
			Name: "supplementalgroups", Fields: under(s, "supplementalGroups[]"),
			Spec: "securityContext: {supplementalGroups: [3000]}", Script: "id -G | grep -qw 3000",
		},
		{
			// The image puts root into group 2000.
			Name: "supplementalgroupspolicy", Fields: under(s, "supplementalGroupsPolicy"),
			Spec: "securityContext: {supplementalGroupsPolicy: Strict}", Script: "! id -G | grep -qw 2000",
		},
		{
			Name: "fsgroup", Fields: under(s, "fsGroup"), Spec: "securityContext: {runAsUser: 1000, fsGroup: 3000}\nvolumes: [{name: v, emptyDir: {}}]",
			Container: mounted, Script: "touch /v/x; [ $(stat -c %g /v/x) = 3000 ]; id -G | grep -qw 3000",
		},
		{
			// The volume belongs to the group since the first time; the second time a file in it does not.
			Name: "fsgroupchangepolicy", Fields: under(s, "fsGroupChangePolicy"),
			Objects: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: NAME}\n" +
				"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n",
			Spec: "{hostname: first, securityContext: {fsGroup: 3000, fsGroupChangePolicy: OnRootMismatch}, " +
				"volumes: [{name: v, persistentVolumeClaim: {claimName: NAME}}, {name: d, hostPath: {path: DIR}}]}",
			Container: "volumeMounts: [{name: v, mountPath: /v}, {name: d, mountPath: /d}]",
			Script:    "if [ -e /v/x ]; then stat -c %g /v/x > /d/group; else touch /v/x; chgrp 5 /v/x; touch /d/set; fi; " + forever,
			When:      func(s *Seen) bool { return s.Has("set") }, Edit: map[string]any{"spec.hostname": "second"},
			Check: when(func(s *Seen) bool { return s.File("group") == "5" }, func(s *Seen) bool { return s.File("group") == "3000" }),
		},
		{
			Name: "pod-seccomp", Fields: under(s, "seccompProfile.type"), Otherwise: map[string]any{s + "seccompProfile.type": "Unconfined"},
			Spec: "securityContext: {seccompProfile: {type: RuntimeDefault}}", Script: "grep -q 'Seccomp:.*2' /proc/self/status",
		},
		{
			Name: "pod-seccomp-localhost", Fields: under(s, "seccompProfile.localhostProfile"),
			Otherwise: map[string]any{s + "seccompProfile.localhostProfile": "allow.json"},
			Spec:      "securityContext: {seccompProfile: {type: Localhost, localhostProfile: no-mkdir.json}}", Script: "! mkdir /x",
		},
		{
			Name: "pod-apparmor", Fields: under(s, "appArmorProfile.type", "appArmorProfile.localhostProfile"),
			Cut:    map[string]string{s + "appArmorProfile.type": s + "appArmorProfile", s + "appArmorProfile.localhostProfile": s + "appArmorProfile"},
			Spec:   "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: monopod-none}}",
			Script: "true", Check: when(withoutProfile, succeeded),
		},
	}
}

// podResourceRows are about what all containers of a pod may have together.
func podResourceRows() []Row {
	const (
		limits, requests = "spec.resources.limits", "spec.resources.requests"
		// cgroup looks for a value in a file of the pod's cgroup, which is found by the end of its uid: its name in version
		// 2 of cgroups, or its place in version 1.
		cgroup = "cgroup() { find /cg -type d -name \"*pod*${U##*-}*\" -prune > /tmp/all 2> /dev/null || true; " +
			"while read -r d; do cat $d/$2 2> /dev/null || true; done < /tmp/all | grep -q \"^$1\\b\"; }\n"
		container = "env: [{name: U, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]\nvolumeMounts: [{name: cg, mountPath: /cg, readOnly: true}]"
		volumes   = "volumes: [{name: cg, hostPath: {path: /sys/fs/cgroup}}]\n"
	)
	return []Row{
		{
			Name: "pod-limits", Fields: []string{limits + "{cpu}", limits + "{memory}"},
			Spec: volumes + "resources: {limits: {cpu: 500m, memory: 32Mi}}", Container: container,
			Script: cgroup + "cgroup 50000 cpu.max || cgroup 50000 cpu.cfs_quota_us; cgroup 33554432 memory.max || cgroup 33554432 memory.limit_in_bytes",
		},
		{
			// 250m are 256 shares, or a weight of 10 (28 by the newer formula).
			Name: "pod-request-cpu", Fields: []string{requests + "{cpu}"}, Spec: volumes + "resources: {requests: {cpu: 250m}}", Container: container,
			Script: cgroup + "cgroup 256 cpu.shares || cgroup 10 cpu.weight || cgroup 28 cpu.weight",
		},
		{
			Name: "pod-request-memory", Fields: []string{requests + "{memory}"}, Spec: "resources: {requests: {cpu: 1m, memory: 1Gi}}",
			Script: "[ $(cat /proc/self/oom_score_adj) -lt 997 ]",
		},
		{
			// On a machine without huge pages, or without their controller, the container says what is missing and waits.
			Name: "pod-hugepages", Fields: []string{limits + "{hugepages-*}", requests + "{hugepages-*}"}, Refused: []string{requests + "{hugepages-*}"},
			Otherwise: map[string]any{requests + "{hugepages-*}": "4Mi"}, Cut: map[string]string{limits + "{hugepages-*}": "spec.resources"},
			Spec: volumes + "resources: {limits: {memory: 32Mi, hugepages-2Mi: 2Mi}, requests: {hugepages-2Mi: 2Mi}}", Container: container,
			Script: cgroup + "cgroup 2097152 hugetlb.2MB.max || cgroup 2097152 hugetlb.2MB.limit_in_bytes",
			Check:  when(func(s *Seen) bool { return succeeded(s) || waitsFor("hugepages-2Mi")(s) }, func(s *Seen) bool { return ByPhase(s) == Fails }),
		},
	}
}
