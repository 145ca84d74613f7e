package fields

import (
	"context"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// metaRows are the rows of kind, apiVersion and metadata.
func metaRows() []Row {
	const annotations = "metadata.annotations"
	shown := func(field string) string {
		return "env: [{name: SHOWN, valueFrom: {fieldRef: {fieldPath: \"" + field + "\"}}}]"
	}
	return []Row{
		{Name: "kind", Fields: []string{"kind", "apiVersion"}, Refused: []string{"kind", "apiVersion"}, Script: "true"},
		{
			Name: "podname", Fields: []string{"metadata.name"}, Otherwise: map[string]any{"metadata.name": "NAME-other"},
			Container: shown("metadata.name"), Script: "[ $SHOWN:$(hostname) = NAME:NAME ]",
		},
		{
			Name: "namespace", Fields: []string{"metadata.namespace"}, Meta: "namespace: elsewhere",
			Container: shown("metadata.namespace"), Script: "[ $SHOWN = elsewhere ]",
		},
		{
			Name: "uid", Fields: []string{"metadata.uid"}, Meta: "uid: 6f8e1f4e-0c1d-4c53-9d2b-7a0e6d0a0001",
			Container: shown("metadata.uid"), Script: "[ $SHOWN = 6f8e1f4e-0c1d-4c53-9d2b-7a0e6d0a0001 ]",
		},
		{
			Name: "labels", Fields: []string{"metadata.labels{}"}, Meta: "labels: {a: b}",
			Container: shown("metadata.labels['a']"), Script: "[ \"$SHOWN\" = b ]",
		},
		{
			Name: "annotations", Fields: []string{annotations + "{}"}, Meta: "annotations: {a: b}",
			Container: shown("metadata.annotations['a']"), Script: "[ \"$SHOWN\" = b ]",
		},
		{
			Name: "cdi", Fields: []string{annotations + "{cdi.k8s.io/*}"}, Meta: "annotations: {cdi.k8s.io/row: CDIKIND=one}",
			Script: "[ \"$DEVICE\" = one ]",
		},
		{
			// A profile that is nowhere: the machine has no AppArmor, or it does not know it.
			Name: "apparmor-annotation", Fields: []string{annotations + "{container.apparmor.security.beta.kubernetes.io/*}"},
			Meta:   "annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/monopod-none}",
			Script: "true", Check: when(withoutProfile, succeeded),
		},
		{
			Name: "ingress-bandwidth", Fields: []string{annotations + "{kubernetes.io/ingress-bandwidth}"},
			Meta: "annotations: {kubernetes.io/ingress-bandwidth: FREEPORT1k}", Script: forever, Check: limited,
		},
		{
			// Of two dollars in a command one is left.
			Name: "egress-bandwidth", Fields: []string{annotations + "{kubernetes.io/egress-bandwidth}"},
			Meta: "annotations: {kubernetes.io/egress-bandwidth: FREEPORT1k}", Check: limitedInside,
			Spec:      "hostPID: true\nvolumes: [{name: v, hostPath: {path: DIR}}]",
			Container: mounted, Script: "echo $$$$ > /v/pid; " + forever,
		},
	}
}

func withoutProfile(s *Seen) bool {
	return waitsFor("AppArmor is not enabled on the host")(s) || waitsFor("apparmor profile not found")(s)
}

// limited is a Check: a device of the machine has a limit that no other run has.
func limited(s *Seen) Verdict {
	if s.Status("c").State.Running == nil {
		return Undecided
	}
	return limitedBy(s, "tc", "qdisc", "show")
}

// limitedInside is limited for the pod of the process whose number is in the file pid.
func limitedInside(s *Seen) Verdict {
	pid := s.File("pid")
	if pid == "" {
		return Undecided
	}
	return limitedBy(s, "nsenter", "--target", pid, "--net", "tc", "qdisc", "show")
}

func limitedBy(s *Seen, name string, args ...string) Verdict {
	out, err := exec.CommandContext(context.Background(), name, args...).Output()
	if err != nil {
		return Undecided
	}
	return verdict(strings.Contains(string(out), "rate "+s.FreePort+"1Kbit"))
}

// endsWith makes a Check: the pod ends in this phase, for this reason.
func endsWith(phase corev1.PodPhase, reason string) func(s *Seen) Verdict {
	return func(s *Seen) Verdict {
		if s.Phase() != corev1.PodSucceeded && s.Phase() != corev1.PodFailed {
			return Undecided
		}
		return verdict(s.Phase() == phase && s.Pod.Status.Reason == reason)
	}
}
