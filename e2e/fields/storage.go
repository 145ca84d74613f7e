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
		{Name: "tty", Fields: []string{c + "tty"}, Container: "tty: true", Script: "test -t 0; test -t 1; test -t 2"},
		{Name: "stdin", Fields: []string{c + "stdin", c + "stdinOnce"}, By: "TestStandardInputStaysOpen"},
	}
}
