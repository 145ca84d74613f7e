// Package fields is the proof that each enforced field of docs/fields.md is enforced: a table of small pods, each with
// a condition that holds with the field and fails without it. TestEachEnforcedFieldHasAnEffect of package e2e runs each
// row on the real agent with real containers: once as it is, when its Check must say Holds, and once more for each of
// its fields, without that field, when it must say Fails. A row can thus not pass where its field is ignored. The tests
// of this package need no root: they count what the table covers.
//
// It is for tests only, starts servers on ports that the rows ask for, and knows nothing of the agent.
package fields

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Row shows what fields do.
//
// The pod is made of YAML: its container c runs Script with `sh -ec`, and by default the row holds when that succeeds.
// In all texts these words are replaced: NAME (the pod's name, another one for each run), IMAGE (testimages.Busybox),
// DIR (an empty directory of the host, for this run alone), PORT and PORT2 (ports of this host where a Server
// listens, on all addresses), FREEPORT (a port of this host that nobody uses), REGISTRY (host:port of a registry of
// the test with busybox:1), NODE (name of the node), BIN (where programs of tests are),
// CDIKIND (a kind of devices, of which there are one and two; they set DEVICE).
type Row struct {
	// Name is that of the test, and begins those of its pods: a DNS label.
	Name string
	// Fields are paths as in docs/fields.md; spec.initContainers[] counts as spec.containers[]. Each is taken out of the
	// pod, everywhere, for a run of its own.
	Fields []string
	// Otherwise gives the value that a field has in the run "without" it, when it must have one.
	Otherwise map[string]any
	// Cut names what to take out instead of the field, when the field cannot go alone: the path of something around it
	// or beside it.
	Cut map[string]string
	// Refused are those of Fields without which (or with Otherwise) the manifest is refused, so that there is nothing
	// to run: for fields that have only one valid value.
	Refused []string

	// Script, Container, Spec and Meta are the parts of the pod: the shell script of container c, and more fields of it,
	// of spec and of metadata. Containers in Spec come after c, which exists when Script or Container is given.
	Script, Container, Spec, Meta string
	// Objects are other documents, e.g. ConfigMaps. They are not touched.
	Objects string

	// NotInit is set where c could not be an init container. Else rows of containers that need no more than their script
	// are run with c as one, too.
	NotInit bool
	// Edit changes these fields, in each run, once the pod is Ready; Remove removes the pod then. Check is asked
	// afterwards, after Remove only when the pod is gone. When, if given, is waited for instead of Ready.
	Edit   map[string]any
	Remove bool
	When   func(s *Seen) bool
	// Answer is what the Server of PORT answers to the n-th request, from 1: 200 when nil. It may wait.
	Answer func(n int, r *Request) int
	// Check looks at the pod again and again, until it says something. By default the phase is looked at.
	Check func(s *Seen) Verdict

	// By names a test of e2e/ or runner/ctrd instead of all this, for what needs another machine or a special agent. The
	// test must contain Marker, by default the last name of the field's path.
	By     string
	Marker string
}

// Verdict is what a Check says.
type Verdict int

// Undecided asks to look again later. Fails is a positive sign that the field had no effect.
const (
	Undecided Verdict = iota
	Holds
	Fails
)

// String is the word for a verdict in messages.
func (v Verdict) String() string { return [...]string{"undecided", "holds", "fails"}[v] }

// Seen is what can be seen of the pod of a run.
type Seen struct {
	// Pod is what the agent says of it; nil as long as, or as soon as, there is none.
	Pod *corev1.Pod
	// Dir is DIR, and Name is NAME.
	Dir, Name string
	// Requests are those that came to PORT and PORT2 so far.
	Requests, Requests2 []*Request
	// FreePort is FREEPORT.
	FreePort string
	// Log returns the log of a container so far.
	Log func(container string) string
	// Before is the pod as it was before Edit or Remove, which were done at ActedAt.
	Before  *corev1.Pod
	ActedAt time.Time
	// Now is the time of the look.
	Now time.Time
}

// All is the whole table. Rows that take long come first, so that nothing waits for them at last.
func All() []Row {
	return slices.Concat(storageRows(), containerRows(), probeRows(), hookRows(), podRows(), volumeRows(), runtimeRows(), claimRows())
}

// Normal is the path under which docs/fields.md speaks of a field.
func Normal(field string) string {
	if rest, ok := strings.CutPrefix(field, "spec.initContainers[]"); ok {
		return "spec.containers[]" + rest
	}
	return field
}
