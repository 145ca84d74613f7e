package fields

// mountRows are about volumeMounts.
func mountRows() []Row {
	const m = c + "volumeMounts[]."
	return []Row{
		{
			Name: "mount", Fields: under(m, "name", "mountPath"), Otherwise: map[string]any{m + "name": "other", m + "mountPath": "/w"},
			Spec:      "volumes: [{name: v, hostPath: {path: DIR}}, {name: other, emptyDir: {}}]",
			Container: "volumeMounts: [{name: v, mountPath: /v}]", Script: "mkdir -p /v; touch /v/mark; echo touched",
			Check: func(s *Seen) Verdict {
				if s.Ended() == nil {
					return Undecided
				}
				return verdict(s.Has("mark"))
			},
		},
		{
			Name: "mount-readonly", Fields: under(m, "readOnly"), Spec: "volumes: [{name: v, emptyDir: {}}]",
			Container: "volumeMounts: [{name: v, mountPath: /v, readOnly: true}]", Script: "! touch /v/x",
		},
		{
			Name: "mount-subpath", Fields: under(m, "subPath"), Spec: "volumes: [{name: v, emptyDir: {}}]",
			Container: "volumeMounts: [{name: v, mountPath: /v, subPath: sub}, {name: v, mountPath: /all}]", Script: "touch /v/x; [ -e /all/sub/x ]",
		},
		{
			Name: "mount-subpathexpr", Fields: under(m, "subPathExpr"), Spec: "volumes: [{name: v, emptyDir: {}}]",
			Container: "env: [{name: A, value: sub}]\nvolumeMounts: [{name: v, mountPath: /v, subPathExpr: x-$(A)}, {name: v, mountPath: /all}]",
			Script:    "touch /v/x; [ -e /all/x-sub/x ]",
		},
		{
			Name: "mount-options", Fields: under(m, "bindMountOptions[]"), Spec: "volumes: [{name: v, emptyDir: {}}]",
			Container: "volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [noexec]}]", Script: "cp /bin/busybox /v/sh; ! /v/sh -c true",
		},
		{
			// What the container mounts is seen on the host.
			Name: "mount-propagation", Fields: under(m, "mountPropagation"), Spec: "volumes: [{name: v, hostPath: {path: DIR}}]",
			Container: "securityContext: {privileged: true}\nvolumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]",
			Script:    "mkdir /v/m; mount -t tmpfs x /v/m; touch /v/m/mark /v/mounted; " + forever,
			Check:     when(func(s *Seen) bool { return s.Has("mounted") && s.Has("m/mark") }, func(s *Seen) bool { return s.Has("mounted") && !s.Has("m/mark") }),
		},
		{
			// An init container mounts something below the volume.
			Name: "mount-recursive", Fields: under(m, "recursiveReadOnly"),
			Spec: "volumes: [{name: v, hostPath: {path: DIR}}]\n" +
				"initContainers: [{name: i, image: IMAGE, command: [sh, -ec, 'mkdir /v/m; mount -t tmpfs x /v/m'], securityContext: {privileged: true}, " +
				"volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}]",
			Container: "volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]",
			Script:    "grep -q ' /v/m ' /proc/mounts; ! touch /v/m/x",
		},
	}
}
