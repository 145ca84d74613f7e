// Package rollout decides which revision of each pod runs.
//
// It owns the step between desired pods (watcher, workload) and the runner: each accepted change of a pod becomes a numbered Revision, and
// a pod follows the newest one unless it was rolled back, manually or because the new one failed its trial. It must not know what runs
// pods. Decide is pure: it turns desired pods, their State and the observation into pods to run and a new State. Store keeps states across
// a power cut; Controller connects both in an agent.
//
// # Images
//
// Revision.Images holds the image digests that a revision ran with, by container and by manifests.ImageVolume. They come from Seen.Images
// and are recorded as containers are created, until the revision is Ready. Revision.Pod passes them on as manifests.Pod.Images; it is the
// only place that makes a pod from a revision, and is called only for rollbacks, since the newest revision runs as written. Object is not
// changed: the name of the image is part of the hash that identifies a running container, and a rollback must not restart a container that
// never changed. Config.Images receives the digests of all kept revisions.
//
// Goroutines: Controller.Run is one. It has another one that writes states that may be lost, and waits for it.
package rollout

import (
	"fmt"
	"slices"
	"time"

	"monopod/manifests"
	"monopod/runner/rollout/packed"
)

// Kept is the number of revisions of a pod that are kept, including those in use.
const Kept = 10

// Outcome is the outcome of a revision.
type Outcome string

// Outcomes.
const (
	// Progressing means that it has not been Ready yet.
	Progressing Outcome = "Progressing"
	// Ready means that it has been Ready, for its soak time if it was on trial.
	Ready Outcome = "Ready"
	// Failed means that its trial has failed.
	Failed Outcome = "Failed"
	// Reverted means that it was rolled back with its group because of another pod.
	Reverted Outcome = "Reverted"
	// Superseded means that a newer one came before it was Ready.
	Superseded Outcome = "Superseded"
)

// Revision is one accepted content of a pod's manifest. It is immutable.
type Revision struct {
	// Number counts from 1 and is never reused.
	Number int `json:"number"`
	// Hash is podhash.Pod of the manifest.
	Hash string `json:"hash"`
	// Manifest refers to Secrets and never holds their content.
	Manifest packed.Manifest `json:"manifest"`
	// Images are the digests of the images it ran with, by container; see the package documentation.
	Images map[string]string `json:"images,omitempty"`
	// Origin is where the manifest was read from when it was accepted.
	Origin manifests.Origin `json:"origin"`
	// Accepted is when it was accepted, by the wall clock of that time.
	Accepted time.Time `json:"accepted"`
	Outcome  Outcome   `json:"outcome"`
	// Reason adds details to the outcome; it may be empty.
	Reason string `json:"reason,omitempty"`
	// Settled is when the outcome was decided; zero if it is open.
	Settled time.Time `json:"settled,omitzero"`
}

// Pod returns the pod to run for a revision that the pod was rolled back to. at is the current place of its manifest, so that the origin of
// the pod is the source that can change it.
func (r *Revision) Pod(at manifests.Origin) (*manifests.Pod, error) {
	pod, err := r.Manifest.Pod()
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w", r.Number, err)
	}
	return &manifests.Pod{Object: pod, Origin: at, Images: r.Images}, nil
}

// RollbackKind is what initiated a rollback.
type RollbackKind string

// Kinds of rollbacks.
const (
	// Manual means that a user did.
	Manual RollbackKind = "Manual"
	// Automatic means that a failed trial did.
	Automatic RollbackKind = "Automatic"
)

// Rollback is why a pod runs another revision than the written one. It lasts until the source changes.
type Rollback struct {
	Kind RollbackKind `json:"kind"`
	// From is the revision before the rollback.
	From   int    `json:"from"`
	Reason string `json:"reason,omitempty"`
	// Culprit is the pod of the update group whose revision failed, by its name in the same namespace; empty means this pod.
	Culprit string    `json:"culprit,omitempty"`
	At      time.Time `json:"at"`
	// Wave is the wave that was reverted; 0 means none.
	Wave int `json:"wave,omitempty"`
}

// Trial is the trial of the active revision, by the clock of one boot: it restarts after a reboot.
type Trial struct {
	Boot string `json:"boot"`
	// Began and ReadyAt are times since boot. ReadyAt is 0 until the pod is Ready.
	Began   time.Duration `json:"began"`
	ReadyAt time.Duration `json:"readyAt,omitempty"`
	// Restarts is the number of restarts of its containers at ReadyAt.
	Restarts int `json:"restarts,omitempty"`
}

// State is the stored rollout state of one pod. A published State is never changed.
type State struct {
	// Revisions are the kept revisions, oldest first.
	Revisions []Revision `json:"revisions"`
	// Wanted is the number of the written revision, Active that of the revision to run. They differ while the pod waits for its turn in a
	// group, and after a Rollback.
	Wanted int `json:"wanted"`
	Active int `json:"active"`
	// Origin is the current place of the manifest.
	Origin   manifests.Origin `json:"origin"`
	Rollback *Rollback        `json:"rollback,omitempty"`
	Trial    *Trial           `json:"trial,omitempty"`
	// Wave is the number of the latest wave with this pod. Base is the revision that was active before it; 0 means that the wave is over.
	Wave int `json:"wave,omitempty"`
	Base int `json:"base,omitempty"`
}

// Revision returns the revision with a number, nil if it is not kept.
func (s *State) Revision(number int) *Revision {
	i := slices.IndexFunc(s.Revisions, func(r Revision) bool { return r.Number == number })
	if i < 0 {
		return nil
	}
	return &s.Revisions[i]
}

// Seen is the observed state of a pod.
type Seen struct {
	// Hash is podhash.Pod of the manifest that has been applied completely; empty if none has.
	Hash string
	// Ready reports whether the pod is Ready or has completed.
	Ready bool
	// Restarts is the sum of restarts of all its containers.
	Restarts int
	// Why is the first problem in one line.
	Why string
	// Images are the digests of the running images, by container.
	Images map[string]string
}
