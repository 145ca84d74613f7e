// Package fields is the proof that each enforced field of docs/fields.md is enforced: rows/ describes small pods, each with
// a condition that holds with the field and fails without it. TestEachEnforcedFieldHasAnEffect of package e2e runs each
// row on the real agent with real containers: once as it is, when its Check must return Holds, and once more for each
// of its fields, without that field, when it must return Fails. A row can thus not pass where its field is ignored. The tests
// of this package need no root: they count what the table covers.
//
// It is for tests only, starts servers on ports that the rows ask for, and knows nothing of the agent.
package fields

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Row is one entry of the files in rows/: a pod that shows what its fields do.
//
// Container c of the pod runs Script with `sh -ec`, and by default the row holds when the pod succeeds. In all texts these
// words are replaced: NAME (the pod's name, which differs in each run), IMAGE (testimages.Busybox), FOREVER (a script that
// runs until SIGTERM), DIR (an empty directory of the host, for this run alone), PORT and PORT2 (ports of this host where a
// Server listens, on all addresses), FREEPORT (an unused port of this host), REGISTRY (host:port of a registry of the test
// with busybox:1), NODE (name of the node), BIN (directory of test programs), CDIKIND (a kind of CDI devices, with the
// devices one and two, which set DEVICE).
type Row struct {
	// Name is the name of the test and the prefix of its pods: a DNS label.
	Name string `json:"name"`
	// Each repeats the row with these words replaced in all its texts.
	Each []Words `json:"each"`
	// At is the prefix of the paths in FieldPaths, RefusedPaths, and of the keys of Otherwise and Cut.
	At string `json:"at"`
	// FieldPaths are paths as in docs/fields.md, separated by spaces; spec.initContainers[] counts as spec.containers[]. Each
	// is removed from the pod, everywhere, for a run of its own. Fields has them in full.
	FieldPaths string   `json:"fields"`
	Fields     []string `json:"-"`
	// Otherwise gives the value that a field has in the run "without" it, if it must have one.
	Otherwise map[string]any `json:"otherwise"`
	// Cut names the path to remove instead of a field that cannot be removed alone.
	Cut map[string]string `json:"cut"`
	// RefusedPaths are those of FieldPaths without which (or with Otherwise) the manifest is refused, so that nothing runs:
	// fields that have only one valid value. Refused has them in full.
	RefusedPaths string   `json:"refused"`
	Refused      []string `json:"-"`

	// Script, Container, Spec and Meta are the parts of the pod: the shell script of container c, and further fields of it,
	// of spec and of metadata. Containers in Spec follow c, which exists if Script or Container is given.
	Script    string         `json:"script"`
	Container map[string]any `json:"container"`
	Spec      map[string]any `json:"spec"`
	Meta      map[string]any `json:"meta"`
	// Objects are other documents, for example ConfigMaps. They do not change between the runs.
	Objects string `json:"objects"`

	// Edit changes these fields, in each run, once the pod is Ready; Remove removes the pod then. Check is called
	// afterwards, after Remove only when the pod is gone. If given, the conditions When are awaited instead of Ready.
	Edit   map[string]any `json:"edit"`
	Remove bool           `json:"remove"`
	Wait   Conditions     `json:"when"`
	// Answers are the status codes of the Server of PORT for the first requests, the last one also for all later ones: 200 by
	// default. "hang" waits until the client gives up.
	Answers []any `json:"answers"`
	// Once the conditions Once are met, the row holds if Holds are met and fails if not. Without Once it fails if Fails are
	// met. By default the phase of the pod decides.
	Once  Conditions `json:"once"`
	Holds Conditions `json:"holds"`
	Fails Conditions `json:"fails"`

	// By names a test of e2e/ or runner/ctrd that stands for the row, for fields that need another machine or a special
	// agent. The test must contain Marker, by default the last name of the field's path.
	By     string `json:"by"`
	Marker string `json:"marker"`
}

// Verdict is the result of a check.
type Verdict int

// Undecided means that the check must be repeated later. Fails is a positive sign that the field had no effect.
const (
	Undecided Verdict = iota
	Holds
	Fails
)

// String is the word for a verdict in messages.
func (v Verdict) String() string { return [...]string{"undecided", "holds", "fails"}[v] }

// Seen is what the test has observed of the pod of a run.
type Seen struct {
	// Pod is the pod as the agent reports it; nil before it exists and after it is gone.
	Pod *corev1.Pod
	// Dir is DIR, and Name is NAME.
	Dir, Name string
	// Requests and Requests2 are those that PORT and PORT2 have received so far.
	Requests, Requests2 []*Request
	// FreePort is FREEPORT.
	FreePort string
	// Log returns the log of a container so far.
	Log func(container string) string
	// Before is the pod as it was before Edit or Remove, which were done at ActedAt.
	Before  *corev1.Pod
	ActedAt time.Time
	// Now is the time of the observation.
	Now time.Time
}

// Normal returns the path of a field in docs/fields.md.
func Normal(field string) string {
	if rest, ok := strings.CutPrefix(field, "spec.initContainers[]"); ok {
		return "spec.containers[]" + rest
	}
	return field
}
