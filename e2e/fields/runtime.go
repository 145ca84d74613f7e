package fields

// runtimeRows are the rows of what chooses and burdens the OCI runtime.
func runtimeRows() []Row {
	return []Row{
		{Name: "runtimeclass", Fields: []string{"spec.runtimeClassName"}, By: "TestRuntimeClass"},
		{Name: "overhead", Fields: []string{"spec.overhead{}"}, By: "TestRuntimeClass", Marker: "overhead"},
	}
}
