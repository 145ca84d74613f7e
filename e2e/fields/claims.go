package fields

// claimRows are the rows of claims. Their documents differ between the runs, so they have tests of their own.
func claimRows() []Row {
	const (
		claim   = "spec.volumes[].persistentVolumeClaim."
		spec    = "spec.volumes[].ephemeral.volumeClaimTemplate.spec."
		iscsi   = "spec.volumes[].iscsi."
		chooses = "TestTheTemplateOfAnEphemeralVolumeChooses"
	)
	return []Row{
		{Name: "claim", Fields: []string{claim + "claimName"}, By: "TestClaimsGetTheVolumesThatFit"},
		{Name: "claim-readonly", Fields: []string{claim + "readOnly"}, By: "TestADirectoryOutlivesThePod"},
		{
			Name: "ephemeral", By: chooses,
			Fields: []string{
				spec + "accessModes[]", spec + "selector.matchLabels{}", spec + "selector.matchExpressions[].key", spec + "selector.matchExpressions[].operator",
				spec + "selector.matchExpressions[].values[]", spec + "resources.requests{}", spec + "volumeName", spec + "storageClassName", spec + "volumeMode",
			},
		},
		{
			Name: "nfs", By: "TestNFS", Marker: "nfs",
			Fields: []string{"spec.volumes[].nfs.server", "spec.volumes[].nfs.path", "spec.volumes[].nfs.readOnly"},
		},
		{
			Name: "iscsi", By: "TestISCSI",
			Fields: []string{
				iscsi + "targetPortal", iscsi + "iqn", iscsi + "lun", iscsi + "iscsiInterface", iscsi + "fsType", iscsi + "readOnly", iscsi + "portals[]",
				iscsi + "chapAuthDiscovery", iscsi + "chapAuthSession", iscsi + "secretRef.name", iscsi + "initiatorName",
			},
		},
		{Name: "block", Fields: []string{"spec.containers[].volumeDevices[].devicePath"}, By: "TestBlockDevices"},
		{Name: "block-name", Fields: []string{"spec.containers[].volumeDevices[].name"}, By: "TestBlockDevices", Marker: "volumeDevices: [{name: d"},
	}
}
