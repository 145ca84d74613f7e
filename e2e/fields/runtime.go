package fields

// runtimeRows are the rows of what chooses and burdens the OCI runtime, and of what only some kernels have.
func runtimeRows() []Row {
	const pod, container = "spec.securityContext.seLinuxOptions.", c + "securityContext.seLinuxOptions."
	return []Row{
		{
			Name: "selinux", By: "TestSELinux", Marker: "seLinuxOptions: {user: other_u, role: other_r, type: special_t, level:",
			Fields: []string{pod + "user", pod + "role", pod + "type", pod + "level", container + "user", container + "role", container + "type", container + "level"},
		},
		{Name: "runtimeclass", Fields: []string{"spec.runtimeClassName"}, By: "TestRuntimeClass"},
		{Name: "overhead", Fields: []string{"spec.overhead{}"}, By: "TestRuntimeClass", Marker: "overhead"},
	}
}
