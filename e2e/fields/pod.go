package fields

// podRows are the rows of metadata and of spec outside of containers and volumes.
func podRows() []Row {
	return []Row{
		{
			Name: "hostname", Fields: []string{"spec.hostname"},
			Spec: "hostname: other", Script: "[ $(hostname) = other ]",
		},
	}
}
