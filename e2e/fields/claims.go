package fields

// claimRows are the rows of claims. Their documents differ between the runs, so they have tests of their own.
func claimRows() []Row {
	const (
		claim   = "spec.volumes[].persistentVolumeClaim."
		spec    = "spec.volumes[].ephemeral.volumeClaimTemplate.spec."
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
		{Name: "block", Fields: []string{"spec.containers[].volumeDevices[].devicePath"}, By: "TestBlockDevices"},
		{Name: "block-name", Fields: []string{"spec.containers[].volumeDevices[].name"}, By: "TestBlockDevices", Marker: "volumeDevices: [{name: d"},
	}
}
