package fields

import "fmt"

// storageRows are the rows of emptyDir volumes, of what is read from them, and of local storage; terminals are here too.
func storageRows() []Row {
	const (
		ref  = c + "env[].valueFrom.fileKeyRef."
		file = `env: [{name: K, valueFrom: {fileKeyRef: {volumeName: v, path: good.env, key: K%s}}}]`
		init = `initContainers: [{name: i, image: IMAGE, volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}],
  command: [sh, -c, "printf \"A='1'\\nK='yes'\\n\" > /v/good.env; echo \"K='no'\" > /v/bad.env; echo \"K='no'\" > /w/good.env"]}]
volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]`
	)
	return []Row{
		{
			Name: "filekeyref", Fields: []string{ref + "volumeName", ref + "path", ref + "key"},
			Otherwise: map[string]any{ref + "volumeName": "w", ref + "path": "bad.env", ref + "key": "A"},
			Spec:      init, Container: fmt.Sprintf(file, ""), Script: `[ "$K" = yes ]`,
		},
		{
			Name: "filekeyref-optional", Fields: []string{ref + "optional"},
			Spec: init, Container: `env: [{name: K, valueFrom: {fileKeyRef: {volumeName: v, path: good.env, key: B, optional: true}}}]`,
			Script: `[ "${K-none}" = none ]`,
			Check:  when(func(s *Seen) bool { return ByPhase(s) == Holds }, waits("CreateContainerConfigError")),
		},
		{
			Name: "emptydir-mode", Fields: []string{"spec.volumes[].emptyDir.mode"},
			Spec: "volumes: [{name: v, emptyDir: {mode: 01750}}]", Container: "volumeMounts: [{name: v, mountPath: /v}]",
			Script: "[ $(stat -c %a /v) = 1750 ]",
		},
		{
			Name: "emptydir-medium", Fields: []string{"spec.volumes[].emptyDir.medium"},
			Spec: "volumes: [{name: v, emptyDir: {medium: Memory}}]", Container: "volumeMounts: [{name: v, mountPath: /v}]",
			Script: "grep -q '^tmpfs /v ' /proc/mounts",
		},
		{
			Name: "emptydir-sizelimit", Fields: []string{"spec.volumes[].emptyDir.sizeLimit"},
			Spec: "volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]", Container: "volumeMounts: [{name: v, mountPath: /v}]",
			Script: "if dd if=/dev/zero of=/v/f bs=64k count=20 2>/dev/null; then false; fi",
		},
		evictedRow("emptydir-sizelimit-disk", "spec.volumes[].emptyDir.sizeLimit",
			"volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]", "volumeMounts: [{name: v, mountPath: /v}]", "/v/f",
			`Usage of EmptyDir volume "v" exceeds the limit "1Mi".`),
		evictedRow("ephemeral-storage", c+"resources.limits{ephemeral-storage}",
			"", "resources: {limits: {ephemeral-storage: 1Mi}}", "/f",
			"Pod ephemeral local storage usage exceeds the total limit of containers 1Mi."),
		{Name: "tty", Fields: []string{c + "tty"}, Container: "tty: true", Script: "test -t 0; test -t 1; test -t 2"},
		{Name: "stdin", Fields: []string{c + "stdin", c + "stdinOnce"}, By: "TestStandardInputStaysOpen"},
	}
}

// evictedRow is a pod that writes 2 MiB into a file and is evicted for it.
func evictedRow(name, field, spec, container, file, message string) Row {
	return Row{
		Name: name, Fields: []string{field}, Spec: spec, Container: container,
		Script: "dd if=/dev/zero of=" + file + " bs=64k count=32 2>/dev/null; sleep 45",
		Check: when(func(s *Seen) bool {
			return s.Phase() == "Failed" && s.Pod.Status.Reason == "Evicted" && s.Pod.Status.Message == message
		}, func(s *Seen) bool { return s.Phase() == "Succeeded" }),
	}
}
