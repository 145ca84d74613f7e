// Package rollout decides which revision of each pod is to run.
//
// It stands between what is written (watcher, workload) and what runs pods: each accepted change of a pod becomes a
// numbered Revision; a pod follows its newest one unless it was taken back to an older one (a Rollback), by hand or
// because the new one failed its trial. Decide is pure: what is wanted, what is noted (State) and what is seen, to the
// pods to run and new notes. Store keeps the notes over a power cut, Controller joins both while an agent runs. The
// package must not know what runs pods.
//
// # Images
//
// Revision.Images is the seam for resolved images: by container, and by manifests.ImageVolume, the digest of the image that
// the revision ran with. It comes in as Seen.Images, and is noted as containers are made, for the last time at the moment
// at which the revision is seen Ready.
// Revision.Pod is where it goes out, as manifests.Pod.Images: it is the only maker of a pod from a revision, and called
// only for one that was gone back to, since the newest revision runs as it is written. Object stays as it was: the image's
// name is in the hash by which a container that runs is recognized, and going back must not restart what never stopped.
// Which images are needed is what the revisions of all kept States say; Config.Images is told.
//
// Goroutines: Controller.Run is one, and has another one that writes what may get lost, which it waits for.
package rollout

import (
	"fmt"
	"slices"
	"time"

	"monopod/manifests"
)

// Kept is how many revisions of a pod are kept, those included that are needed.
const Kept = 10

// Outcome is what became of a revision.
type Outcome string

// Outcomes.
const (
	// Progressing: it has not been Ready yet.
	Progressing Outcome = "Progressing"
	// Ready: it has been Ready, for as long as its soak time if it was on trial.
	Ready Outcome = "Ready"
	// Failed: its trial has failed.
	Failed Outcome = "Failed"
	// Reverted: it was taken back with the group it was part of, because of another pod.
	Reverted Outcome = "Reverted"
	// Superseded: a newer one came before it was Ready.
	Superseded Outcome = "Superseded"
)

// Revision is one accepted content of a pod's manifest. It is immutable.
type Revision struct {
	// Number counts from 1 and is never used again.
	Number int `json:"number"`
	// Hash is podhash.Pod of the manifest.
	Hash string `json:"hash"`
	// Manifest refers to Secrets and never holds their content.
	Manifest Manifest `json:"manifest"`
	// Images are the digests of the images it ran with, by container; see the package comment.
	Images map[string]string `json:"images,omitempty"`
	// Origin is where it was written when it was accepted.
	Origin manifests.Origin `json:"origin"`
	// Accepted is when, by the clock of then.
	Accepted time.Time `json:"accepted"`
	Outcome  Outcome   `json:"outcome"`
	// Reason says more about the outcome; may be empty.
	Reason string `json:"reason,omitempty"`
	// Settled is when the outcome was known; zero: not yet.
	Settled time.Time `json:"settled,omitzero"`
}

// Pod returns the pod to run for a revision that was gone back to. at is where its manifest is written now: who looks
// for the pod's source finds the one that can change it.
func (r *Revision) Pod(at manifests.Origin) (*manifests.Pod, error) {
	pod, err := r.Manifest.pod()
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w", r.Number, err)
	}
	return &manifests.Pod{Object: pod, Origin: at, Images: r.Images}, nil
}

// RollbackKind says who went back.
type RollbackKind string

// Kinds of rollbacks.
const (
	// Manual: a person did.
	Manual RollbackKind = "Manual"
	// Automatic: a trial failed.
	Automatic RollbackKind = "Automatic"
)

// Rollback says why a pod runs another revision than the one that is written. It lasts until the source changes.
type Rollback struct {
	Kind RollbackKind `json:"kind"`
	// From is the revision that was left.
	From   int    `json:"from"`
	Reason string `json:"reason,omitempty"`
	// Culprit is the pod of the update group whose revision failed, by its name in the same namespace; empty: this one.
	Culprit string    `json:"culprit,omitempty"`
	At      time.Time `json:"at"`
	// Wave is the one that was reverted; 0: none.
	Wave int `json:"wave,omitempty"`
}

// Trial is the probation of the active revision, by the clock of one boot: after a reboot it begins anew.
type Trial struct {
	Boot string `json:"boot"`
	// Began and ReadyAt are times since the boot; ReadyAt 0: it is not Ready yet.
	Began   time.Duration `json:"began"`
	ReadyAt time.Duration `json:"readyAt,omitempty"`
	// Restarts is how often its containers had been restarted at ReadyAt.
	Restarts int `json:"restarts,omitempty"`
}

// State is everything that is noted of one pod. A State that was given out is never changed.
type State struct {
	// Revisions are those that are kept, oldest first.
	Revisions []Revision `json:"revisions"`
	// Wanted is the number of the revision that is written, Active of the one that runs or is to run. They differ while
	// the pod waits for its turn in a group, and after a Rollback.
	Wanted int `json:"wanted"`
	Active int `json:"active"`
	// Origin is where the manifest is written now.
	Origin   manifests.Origin `json:"origin"`
	Rollback *Rollback        `json:"rollback,omitempty"`
	Trial    *Trial           `json:"trial,omitempty"`
	// Wave is the number of the latest wave of changes that the pod was part of. Base is the revision that was active
	// before it; 0: the wave is over.
	Wave int `json:"wave,omitempty"`
	Base int `json:"base,omitempty"`
}

// Revision returns the revision of a number, nil when it is not kept.
func (s *State) Revision(number int) *Revision {
	i := slices.IndexFunc(s.Revisions, func(r Revision) bool { return r.Number == number })
	if i < 0 {
		return nil
	}
	return &s.Revisions[i]
}

// Seen is what is known of a pod that runs.
type Seen struct {
	// Hash is podhash.Pod of the manifest that has been carried out to the end; empty: none has.
	Hash string
	// Ready says that the pod is Ready, or has completed.
	Ready bool
	// Restarts of all its containers.
	Restarts int
	// Why is one line about the first thing in the way.
	Why string
	// Images are the digests of the images that run, by container.
	Images map[string]string
}
