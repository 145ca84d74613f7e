package fields

// capabilityRows are about what a process may do.
func capabilityRows() []Row {
	const (
		s = c + "securityContext."
		// has looks for a capability, by its number, in those that are in effect.
		has = "has() { [ $((0x$(grep CapEff /proc/self/status | cut -f 2) >> $1 & 1)) = 1 ]; }; "
	)
	return []Row{
		{
			Name: "capabilities-add", Fields: under(s, "capabilities.add[]"),
			Container: "securityContext: {capabilities: {add: [NET_ADMIN]}}", Script: has + "has 12; ip link set lo down",
		},
		{
			Name: "capabilities-drop", Fields: under(s, "capabilities.drop[]"),
			Container: "securityContext: {capabilities: {drop: [CHOWN]}}", Script: has + "has 1; touch /x; ! chown 1 /x",
		},
		{
			Name: "privileged", Fields: under(s, "privileged"), Container: "securityContext: {privileged: true}", Script: has + "has 21; [ -e /dev/kmsg ]",
		},
		{
			Name: "escalation", Fields: under(s, "allowPrivilegeEscalation"), Container: "securityContext: {allowPrivilegeEscalation: false}",
			Script: "grep -q 'NoNewPrivs:.*1' /proc/self/status",
		},
		{
			Name: "procmount", Fields: under(s, "procMount"), Spec: "hostUsers: false", Container: "securityContext: {procMount: Unmasked}",
			Script: "! grep -q ' /proc/' /proc/mounts",
		},
		{
			Name: "seccomp", Fields: under(s, "seccompProfile.type"), Otherwise: map[string]any{s + "seccompProfile.type": "Unconfined"},
			Container: "securityContext: {seccompProfile: {type: RuntimeDefault}}", Script: "grep -q 'Seccomp:.*2' /proc/self/status",
		},
		{
			Name: "seccomp-localhost", Fields: under(s, "seccompProfile.localhostProfile"),
			Otherwise: map[string]any{s + "seccompProfile.localhostProfile": "allow.json"},
			Container: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: no-mkdir.json}}", Script: "! mkdir /x",
		},
		{
			Name: "apparmor", Fields: under(s, "appArmorProfile.type", "appArmorProfile.localhostProfile"), By: "TestAppArmor", Marker: "appArmorProfile",
		},
	}
}

// identityRows are about who a process is.
func identityRows() []Row {
	const s = c + "securityContext."
	return []Row{
		{
			Name: "runas", Fields: under(s, "runAsUser", "runAsGroup"),
			Container: "securityContext: {runAsUser: 1000, runAsGroup: 2000}", Script: "[ $(id -u):$(id -g) = 1000:2000 ]",
		},
		{
			Name: "nonroot", Fields: under(s, "runAsNonRoot"), Container: "securityContext: {runAsNonRoot: true}", Script: "true",
			Check: when(waits("CreateContainerConfigError"), succeeded),
		},
		{
			Name: "readonlyroot", Fields: under(s, "readOnlyRootFilesystem"), Container: "securityContext: {readOnlyRootFilesystem: true}", Script: "! touch /x",
		},
	}
}
