// Package localapi is the vocabulary of the API on the unix socket: what requests and answers hold, as JSON.
//
// It has no behavior, so that clients need not know the server.
package localapi

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"monopod/internal/model"
	"monopod/node/budget"
	"monopod/node/events"
)

// Agent is monopod's own resource usage: the response to GET agents/self/costs.
type Agent struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	// Agent is monopod, with the containerd inside it; Shims are the processes that look after containers.
	Agent budget.Cost `json:"agent"`
	Shims budget.Cost `json:"shims"`
	// Cgroup is monopod's own, with the limits of its budget; empty: it has none.
	Cgroup string        `json:"cgroup,omitempty"`
	Budget budget.Limits `json:"budget,omitzero"`
	// MemoryLimitBytes is what the garbage collector tries to do with; 0: no limit is set.
	MemoryLimitBytes int64 `json:"memoryLimitBytes,omitempty"`
	// Network is that of new pods, and why it is used; empty: it has not been set up.
	Network string `json:"network,omitempty"`
	// Conditions are those of pressure; empty: they are not watched.
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// Warnings list what was omitted, and why.
	Warnings []string `json:"warnings,omitempty"`
}

// ApplyRequest is the body of PUT agents/self/applied: all files become one change, or none do.
type ApplyRequest struct {
	Files []ManifestFile `json:"files"`
	// DryRun: say what would be done, and do nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// DeleteRequest is the body of DELETE agents/self/applied. The objects in Files and Objects are removed as one change.
type DeleteRequest struct {
	Files   []ManifestFile `json:"files,omitempty"`
	Objects []ObjectRef    `json:"objects,omitempty"`
	DryRun  bool           `json:"dryRun,omitempty"`
}

// ApplyResult is the answer to both requests.
type ApplyResult struct {
	Objects []AppliedObject `json:"objects"`
	// Notes are about documents that have no effect here, and about a change that is stored and will be finished later.
	Notes []string `json:"notes,omitempty"`
	// Warnings are about what the pods will wait for, or do differently from a cluster.
	Warnings []string `json:"warnings,omitempty"`
}

// EventChange is one event of a watch of events.
type EventChange struct {
	// Type is ADDED, or MODIFIED for one that came again.
	Type   string       `json:"type"`
	Object corev1.Event `json:"object"`
}

// EventsPath is the path of a request for events that match a filter, with other parameters.
func EventsPath(f events.Filter, q url.Values) string {
	for name, value := range map[string]string{"kind": f.Kind, "namespace": f.Namespace, "name": f.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return Self("events") + "?" + q.Encode()
}

// What a stream of files has behind it.
const (
	TrailerError   = "Monopod-Error"
	TrailerWarning = "Monopod-Warning"
)

// MediaTar is the type of a stream of files.
const MediaTar = "application/x-tar"

// Written is the answer to a PUT of files.
type Written struct {
	// Warnings list what was omitted, and why.
	Warnings []string `json:"warnings,omitempty"`
}

// ImageList is the response to GET agents/self/images.
type ImageList struct {
	Items []Image `json:"items"`
	// Pulls are under way.
	Pulls []model.Pull `json:"pulls,omitempty"`
	Disk  ImageDisk    `json:"disk"`
}

// Image is an image with all its names.
type Image struct {
	// Digest is that of its manifest or index.
	Digest string `json:"digest"`
	// Names are complete references, RepoDigests those by digest that registries gave.
	Names       []string `json:"names,omitempty"`
	RepoDigests []string `json:"repoDigests,omitempty"`
	// Size is how many bytes it takes, compressed and unpacked, Own those that it shares with no other image.
	Size int64 `json:"size"`
	Own  int64 `json:"own"`
	// FirstSeen is when it came, LastUsed when the last container with it went; absent when one is there, or never was.
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
	// UsedBy are the pods with a container of it, as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
	// NeededBy is why it is not removed when the disk is full; nothing: it may be.
	NeededBy []ImageNeed `json:"neededBy,omitempty"`
}

// PullRequest is the body of POST agents/self/pulls.
type PullRequest struct {
	Images []string `json:"images"`
	// IfNotPresent: what is here is not asked for again.
	IfNotPresent bool `json:"ifNotPresent,omitempty"`
}

// States of an image that is being pulled.
const (
	PullPulling = "Pulling"
	PullPulled  = "Pulled"
	PullFailed  = "Failed"
)

// PullEvent is the progress of the pull of an image. The last one of each image is Pulled or Failed.
type PullEvent struct {
	Image string `json:"image"`
	State string `json:"state"`
	// Done and Total are as in model.Pull.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Digest and Seconds are the result of a pull, Reason and Error its failure.
	Digest  string  `json:"digest,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// ImageRemoval is the body of DELETE agents/self/images.
type ImageRemoval struct {
	// Images are references, or digests of manifests or indices.
	Images []string `json:"images"`
	// Force removes images even if containers of pods use them; the containers keep running.
	Force bool `json:"force,omitempty"`
}

// ImagesRemoved is the answer to it, in the same order.
type ImagesRemoved struct {
	Images []RemovedImage `json:"images"`
}

// ObjectQuery selects objects; empty fields select all.
type ObjectQuery struct{ Kind, Namespace, Name string }

// History is what is kept of a pod's revisions.
type History struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Wanted is the number of the revision that is written, Active that of the one that runs or is to run.
	Wanted int `json:"wanted"`
	Active int `json:"active"`
	// Rollback and Update are the annotations' texts.
	Rollback string `json:"rollback,omitempty"`
	Update   string `json:"update,omitempty"`
	// Revisions are oldest first.
	Revisions []Revision `json:"revisions"`
	// Warning is about a rollback that has succeeded all the same.
	Warning string `json:"warning,omitempty"`
}

// RollbackRequest is the body of POST podreports/NAME/rollback.
type RollbackRequest struct {
	// To is the number of a revision; 0: the last one before the active one that was Ready.
	To int `json:"to,omitempty"`
}

// Schedule reports whether pods may run on this machine, and the progress of a drain.
type Schedule struct {
	// Cordoned: no new pods are started.
	Cordoned bool `json:"cordoned"`
	// Drained: existing pods are stopped, too.
	Drained bool `json:"drained"`
	// PriorityBelow and Ignore are what the drain spares; see DrainRequest.
	PriorityBelow *int32   `json:"priorityBelow,omitempty"`
	Ignore        []string `json:"ignore,omitempty"`
	// UntilBoot: all of this ends with the next boot.
	UntilBoot bool `json:"untilBoot,omitempty"`
	// Since is when it was asked for.
	Since time.Time `json:"since,omitzero"`
	// ShuttingDown: the machine is shutting down.
	ShuttingDown bool `json:"shuttingDown"`
	// Unseen is why it is not known which pods run; empty: it is.
	Unseen string `json:"unseen,omitempty"`
	// Stopping are the pods that are to stop and have not yet, as NAMESPACE/NAME.
	Stopping []string `json:"stopping,omitempty"`
}

// DrainRequest is the body of PUT agents/self/drain and PUT agents/self/cordon.
type DrainRequest struct {
	// PriorityBelow spares pods of that priority and above.
	PriorityBelow *int32 `json:"priorityBelow,omitempty"`
	// Ignore spares pods by patterns of their names.
	Ignore []string `json:"ignore,omitempty"`
	// UntilBoot ends it when the machine starts again.
	UntilBoot bool `json:"untilBoot,omitempty"`
}

// ScheduleEvent is one event of WatchSchedule.
type ScheduleEvent struct {
	Object Schedule `json:"object"`
}

// Bookmark is the type of the event that WatchAll sends after the existing pods.
const Bookmark = string(apiwatch.Bookmark)

// ManifestFile is a file of documents as a client has read it.
type ManifestFile struct {
	// Name is what messages call it.
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// ObjectRef names an object; the namespace of cluster-wide kinds is empty.
type ObjectRef struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// AppliedObject is the answer about one object.
type AppliedObject struct {
	ObjectRef
	Verdict Verdict `json:"verdict"`
	// Pods are those to which what was applied comes: a pod itself, or those of a workload whose pods stay. Of what was
	// deleted they are those that go.
	Pods []AppliedPod `json:"pods,omitempty"`
	// Warning is why it has no effect now.
	Warning string `json:"warning,omitempty"`
}

// ImageNeed is a reason to keep an image.
type ImageNeed struct {
	// Kind is Manifest, Revision, Preload or Undecided.
	Kind string `json:"kind"`
	// By is the object that names it, or the file that holds it.
	By string `json:"by,omitempty"`
}

// ImageDisk is the file system of the images.
type ImageDisk struct {
	Capacity  int64 `json:"capacity"`
	Available int64 `json:"available"`
	// UsedPercent is the usage of the disk; above HighPercent unused images are removed until it is at LowPercent. 100: they stay.
	UsedPercent int `json:"usedPercent"`
	HighPercent int `json:"highPercent"`
	LowPercent  int `json:"lowPercent"`
}

// RemovedImage is what became of one image.
type RemovedImage struct {
	Image string `json:"image"`
	// Digest is that of what was removed.
	Digest string `json:"digest,omitempty"`
	// Error is why it was not; empty: it was.
	Error string `json:"error,omitempty"`
}

// Revision is one accepted content of a manifest.
type Revision struct {
	Number int `json:"number"`
	// Outcome is Progressing, Ready, Failed, Reverted or Superseded.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	// Source is where it was written, as "file:line" or URL.
	Source   string    `json:"source"`
	Accepted time.Time `json:"accepted"`
	// Settled is when the outcome was known.
	Settled time.Time `json:"settled,omitzero"`
	// Images are the digests of the images it ran with, by container; of image volumes by volume/NAME.
	Images map[string]string `json:"images,omitempty"`
	// Manifest is the pod with its defaults.
	Manifest json.RawMessage `json:"manifest"`
}

// Revision returns one by its number, nil when it is not kept.
func (h *History) Revision(number int) *Revision {
	for i := range h.Revisions {
		if h.Revisions[i].Number == number {
			return &h.Revisions[i]
		}
	}
	return nil
}

// String returns "kind/name" as kubectl does, with the namespace unless it is default.
func (r ObjectRef) String() string {
	name := strings.ToLower(r.Kind) + "/" + r.Name
	if r.Namespace != "" && r.Namespace != metav1.NamespaceDefault {
		name += " in " + r.Namespace
	}
	return name
}

// Verdict is what became of an object.
type Verdict string

// Verdicts.
const (
	Created    Verdict = "created"
	Configured Verdict = "configured"
	Unchanged  Verdict = "unchanged"
	Deleted    Verdict = "deleted"
	// NotFound: it is not among what was applied, nor written elsewhere.
	NotFound Verdict = "not found"
)

// AppliedPod is a pod to come, or to go.
type AppliedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Manifest is what AnnotationManifest of the pod will be; empty for one that goes.
	Manifest string `json:"manifest,omitempty"`
	// Rollback reports that an earlier revision runs instead of what was applied, unchanged, and why.
	Rollback string `json:"rollback,omitempty"`
}

// KubeconfigRequest is the body of POST agents/self/kubeconfig: the client for which a kubeconfig of monopod's Kubernetes API is issued.
type KubeconfigRequest struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// Namespace is the default namespace of the context.
	Namespace string `json:"namespace,omitempty"`
	// Server is the URL of the API; empty means the one for clients on this machine.
	Server string `json:"server,omitempty"`
}

// Kubeconfig is the response to a KubeconfigRequest.
type Kubeconfig struct {
	// Kubeconfig is the content of the file, in YAML.
	Kubeconfig string `json:"kubeconfig"`
}
