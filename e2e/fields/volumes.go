package fields

// volumeRows are the rows of spec.volumes.
func volumeRows() []Row {
	return append(podVolumeRows(), []Row{
		{
			Name: "hostpath", Fields: []string{"spec.volumes[].hostPath.path"},
			Otherwise: map[string]any{"spec.volumes[].hostPath.path": "/etc"},
			Spec:      "volumes: [{name: v, hostPath: {path: DIR}}]",
			Container: "volumeMounts: [{name: v, mountPath: /v}]",
			Script:    "[ -z \"$(ls /v)\" ]",
		},
	}...)
}
