// Package why explains the state of a pod: one causal chain for each pod, file and source with a problem, from its manifest to what a user
// can do.
//
// All and One are pure: they know the Facts, and neither clock, disk nor containerd. The package owns the texts, and the kinds of steps,
// which are stable because programs read them; it must not decide anything about pods. It has no goroutines.
package why

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/node/why/instance"
)

// Kind is the kind of a step.
type Kind string

// Kinds of steps, in the order in which a chain has them. A chain has several causes when one stands behind the other:
// the first is what is seen, the last is what started it.
const (
	// Wanted: where the pod is written, and its revision.
	Wanted Kind = "wanted"
	// Runs: what of it runs now.
	Runs Kind = "runs"
	// Network: which network new pods are connected to, and why.
	Network Kind = "network"
	// Cause: what prevents the pod from running or being ready.
	Cause Kind = "cause"
	// Output: the last lines of a container.
	Output Kind = "output"
	// Events: what was written down of it lately.
	Events Kind = "events"
	// Next: what happens by itself, and when.
	Next Kind = "next"
	// Action: what a person can do.
	Action Kind = "action"
)

// Step is one link of a chain.
type Step struct {
	Kind Kind `json:"kind"`
	// Reason is set for causes.
	Reason cause.Kind `json:"reason,omitempty"`
	// Container is set when the step is about one.
	Container string `json:"container,omitempty"`
	Text      string `json:"text"`
	// Lines are what was printed, or what is wrong with a file, line by line.
	Lines []string `json:"lines,omitempty"`
	// At is when it happened; of Next, when it will.
	At time.Time `json:"at,omitzero"`
}

// Chain is why one pod, one input or the agent itself is as it is.
type Chain struct {
	// Pod is namespace/name; empty when it is not about one pod.
	Pod string `json:"pod,omitempty"`
	// Input is the file or URL, for those.
	Input string `json:"input,omitempty"`
	// Text is the headline.
	Text string `json:"text"`
	// Fine reports that there is no problem.
	Fine bool `json:"fine"`
	// Reason is that of the last cause, the one to begin with; empty when there is none.
	Reason cause.Kind `json:"reason,omitempty"`
	Steps  []Step     `json:"steps"`
}

// Answer is what `monopod why` says.
type Answer struct {
	// Text is one line about all of it.
	Text string `json:"text"`
	// Fine reports that nothing of what was asked about has a problem.
	Fine   bool    `json:"fine"`
	Chains []Chain `json:"chains"`
}

// Facts are all that is known.
type Facts struct {
	Now time.Time
	// Daemon is why no daemon answered; empty: the facts come from a running daemon.
	Daemon string
	// Hangs reports that a daemon exists, but did not answer, or not as monopod does; Daemon has the details.
	Hangs bool
	// Runtime is why containers cannot be seen now; empty: they can.
	Runtime string
	Pods    []Pod
	Inputs  []model.Input
	// Objects are the documents besides pods.
	Objects []Object
	// Named are the documents of refused files, as far as they can be parsed.
	Named []Object
	// Unfit are the pods that an API server has bound to this machine, which can never run them.
	Unfit []Unfit
	// Places are paths of the configuration that answers name.
	Places Places
	// Instance is the daemon that was asked.
	Instance Instance
}

// Instance is the daemon that was asked.
type Instance = instance.Instance

// Unfit is a pod of an API server that this machine cannot run, and why.
type Unfit struct{ Namespace, Name, Text string }

// Places are paths of the configuration.
type Places struct {
	// Manifests is staticPodPath, Logins is registryConfig, Preload is the first of preloadDirectories; Endpoint is
	// containerRuntimeEndpoint.
	Manifests, Logins, Preload, Endpoint string
	// Config is the configuration file.
	Config string
	// Applied is the directory of applied objects, which must not be edited by hand.
	Applied string
}

// Pod is everything known about a pod.
type Pod struct {
	// Object is the manifest with the status filled in.
	Object *corev1.Pod
	// Where is the place of its manifest, as file:line or URL.
	Where string
	// Revision is the one that runs, or is being made; 0 when that is not known.
	Revision int
	// Rollback is why another revision runs than the manifest asks for; zero: the revisions agree.
	Rollback Rollback
	// Update is what the change of the manifest waits for, or that it is on trial; empty: nothing.
	Update  string
	Trouble model.Trouble
	// More are the problems of other containers.
	More []model.Trouble
	// NextTry is when the agent acts again by itself; zero: it waits for an event.
	NextTry time.Time
	// Doing is what the runtime is carrying out for the pod, the oldest first.
	Doing []model.Doing
	// EndedBy says of containers, by name, that monopod (Agent) or a restart of the machine (Reboot) ended their last run: nothing was wrong with them.
	EndedBy map[string]string
	// StoppedFor says of containers, by name, for which failure of its own (a runner.StopCause) monopod stopped their last run.
	StoppedFor map[string]string
	// Refused says of containers, by name, why the process of their last instance could not be started.
	Refused map[string]cause.Cause
	Probes  []model.Probe
	// Output has the last lines of containers that ended, by name.
	Output map[string][]string
	// Events are the last ones, a line each.
	Events []string
	// LogsDropped names the container whose output is not kept now, and why; empty: all output is kept.
	LogsDropped string
	// NetworkDamaged is what is wrong with the pod's network and why it could not be repaired; empty: nothing is known.
	NetworkDamaged string
	// NotMirrored is why the API server that this machine reports to does not show the pod as it is; empty: it does.
	NotMirrored string
	// Pulls are those of its images that are under way.
	Pulls []model.Pull
	// Listeners are, for a pod on the host network with a container that ended, the processes on the port that its program failed to open,
	// else on the ports of the pod; for a pod whose probes are refused, those on all its ports.
	Listeners []Listener
}

// Rollback is that of a pod which runs by an earlier revision than its manifest.
type Rollback struct {
	// Text says all of it.
	Text string
	// Wanted is the revision that the manifest asks for. ByHand: a user requested the earlier one.
	Wanted int
	ByHand bool
	// Culprit is the pod of the update group, in the same namespace, whose update failed; empty: this one.
	Culprit string
}

// Listener is a process that has a port of the host.
type Listener struct {
	// Protocol is TCP or UDP; IP is empty for all addresses.
	Protocol string
	IP       string
	Port     int
	PID      int
	// Name is that of the program; empty when it is unknown.
	Name string
	// Pod is namespace/name of the pod that the process is part of, with Container; empty: of none.
	Pod, Container string
}

// Object is a document besides pods, or one that is only known by its name.
type Object struct {
	Kind, Namespace, Name string
	// Where is file:line.
	Where string
	// Keys are those of a ConfigMap or Secret.
	Keys []string
	// Selector is that of a Service: the labels of its pods.
	Selector map[string]string
}
