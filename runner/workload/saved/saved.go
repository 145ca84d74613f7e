// Package saved keeps what is known of workloads after a restart: completions of Jobs, runs of CronJobs, and revisions of templates.
//
// It owns that State and the files it is stored in; it must not know the rules by which it changes. A State that has been stored is shared: it
// is not changed but replaced. A Store belongs to one goroutine; the package starts none.
package saved

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/atomicfile"
	"monopod/manifests"
	"monopod/runner/workload/revisions"
)

// State is the persistent state of workloads, by their id.
type State struct {
	Jobs  map[string]*Job     `json:"jobs,omitempty"`
	Crons map[string]*CronJob `json:"crons,omitempty"`
	// Histories are those of Deployments, StatefulSets and DaemonSets. They are in a file of their own: they are large and change rarely.
	Histories map[string]*revisions.History `json:"-"`
}

// NewState returns an empty state, whose maps can be added to.
func NewState() State {
	return State{Jobs: map[string]*Job{}, Crons: map[string]*CronJob{}, Histories: map[string]*revisions.History{}}
}

// Job is the progress of one run of a Job.
type Job struct {
	// Origin is where the Job is written: the state belongs to that document only.
	Origin manifests.Origin `json:"origin"`
	// UID identifies the Job: another Job of that name begins a run of its own. It is empty in states of older versions.
	UID types.UID `json:"uid,omitempty"`
	// Revision is the revision of the template that the run began with. Its pods have it as a label.
	Revision string `json:"revision"`
	// Written is the revision of the template as it is written now; empty: it is Revision.
	Written string `json:"written,omitempty"`
	// Fixed is a hash of what cannot change in a template without another run. It is empty in states of older versions.
	Fixed string `json:"fixed,omitempty"`
	// Slots are the required completions, by index.
	Slots []Slot `json:"slots,omitempty"`
	// Failed is the number of failed pods.
	Failed int `json:"failed,omitempty"`
	// Ran is the elapsed time, without the time while monopod was stopped.
	Ran time.Duration `json:"ran,omitempty"`
	// Finished is Complete or Failed; Reason is why.
	Finished string `json:"finished,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Since is the time since it finished, counted like Ran.
	Since time.Duration `json:"since,omitempty"`
	// Ended are the names of the last pods that ended, latest last: their logs are kept.
	Ended []string `json:"ended,omitempty"`
	// Suspended reports that it is suspended, Resumed that it has been.
	Suspended bool `json:"suspended,omitempty"`
	Resumed   bool `json:"resumed,omitempty"`
	// Began and Over are when it began, or was last resumed, and finished, by the wall clock. They are only shown.
	Began time.Time `json:"began,omitzero"`
	Over  time.Time `json:"over,omitzero"`

	// At is when Ran or Since was last updated. It is not stored, because it is specific to this process.
	At time.Time `json:"-"`
}

// Ends of a Job.
const (
	Complete = "Complete"
	Failed   = "Failed"
)

// Slot is one required completion of a Job.
type Slot struct {
	Done bool `json:"done,omitempty"`
	// Attempt is the number of failed pods of this slot.
	Attempt int `json:"attempt,omitempty"`
	// Started reports that the pod of this attempt has been requested.
	Started bool `json:"started,omitempty"`

	// Retry is when the next attempt may begin. It is not stored: after a restart it begins at once.
	Retry time.Time `json:"-"`
}

// CronJob is the persistent state of a CronJob.
type CronJob struct {
	Origin manifests.Origin `json:"origin"`
	// UID identifies the CronJob, as that of a Job does.
	UID types.UID `json:"uid,omitempty"`
	// Last is the latest scheduled time that was processed.
	Last time.Time `json:"last"`
	// Begun is the scheduled time of the latest run, Succeeded is when a run last completed, by the wall clock. Both are only shown: the runs
	// themselves may be gone.
	Begun     time.Time `json:"begun,omitzero"`
	Succeeded time.Time `json:"succeeded,omitzero"`
	// Runs are its Jobs, oldest first.
	Runs []Run `json:"runs,omitempty"`
}

// LastRun returns the scheduled time of the latest run; zero: there has been none.
func (c *CronJob) LastRun() time.Time {
	if n := len(c.Runs); c.Begun.IsZero() && n > 0 { // states of older versions do not have it
		return c.Runs[n-1].At
	}
	return c.Begun
}

// Run is one Job of a CronJob.
type Run struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	Job  *Job      `json:"job"`
}

// Clone copies the parts that may change.
func (j *Job) Clone() *Job {
	c := *j
	c.Slots, c.Ended = append([]Slot(nil), j.Slots...), append([]string(nil), j.Ended...)
	return &c
}

// Without returns the state without some workloads, by their ids.
func (s State) Without(gone map[manifests.ObjectID]bool) State {
	jobs, crons := maps.Clone(s.Jobs), maps.Clone(s.Crons)
	for id := range gone {
		delete(jobs, id.String())
		delete(crons, id.String())
	}
	s.Jobs, s.Crons = jobs, crons
	return s
}

// Keep carries over the state of workloads that are missing now but may come back, because their input has not been read in this run.
func (s State) Keep(old State, removable func(manifests.Origin) bool) {
	for id, j := range old.Jobs {
		if s.Jobs[id] == nil && !removable(j.Origin) {
			s.Jobs[id] = j
		}
	}
	for id, c := range old.Crons {
		if s.Crons[id] == nil && !removable(c.Origin) {
			s.Crons[id] = c
		}
	}
	for id, h := range old.Histories {
		if s.Histories[id] == nil && !removable(h.Origin) {
			s.Histories[id] = h
		}
	}
}

// RunID names a run of a CronJob.
type RunID struct{ Namespace, CronJob, Name string }

// Has reports whether a run is known.
func (s State) Has(id RunID) bool {
	c := s.Crons["CronJob "+id.Namespace+"/"+id.CronJob]
	return c != nil && slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Name == id.Name })
}

// WithoutRuns returns the state without some runs, which then do not begin again. Shared parts are not changed.
func (s State) WithoutRuns(runs []RunID) State {
	for _, id := range runs {
		if !s.Has(id) {
			continue
		}
		key := "CronJob " + id.Namespace + "/" + id.CronJob
		c := *s.Crons[key]
		c.Begun = c.LastRun() // of a state of an older version
		c.Runs = slices.DeleteFunc(slices.Clone(c.Runs), func(r Run) bool { return r.Name == id.Name })
		s.Crons = maps.Clone(s.Crons)
		s.Crons[key] = &c
	}
	return s
}

// Active reports whether it has not ended.
func (r Run) Active() bool { return r.Job == nil || r.Job.Finished == "" }

// Active returns the number of runs that have not ended.
func (c *CronJob) Active() int {
	n := 0
	for _, r := range c.Runs {
		if r.Active() {
			n++
		}
	}
	return n
}

// Store keeps a State in two files: that of Jobs and CronJobs, and that of histories.
type Store struct{ jobs, histories file }

// file is one file of a Store.
type file struct {
	path string
	// written is the content of the file; nil if unknown.
	written []byte
}

// NewStore returns the store of a State, which is kept in a file and one beside it. It does no I/O.
func NewStore(path string) *Store {
	return &Store{file{path: path}, file{path: strings.TrimSuffix(path, ".json") + "-history.json"}}
}

// Load reads the state. A missing file is an empty state; an invalid one is set aside.
func (s *Store) Load() (State, error) {
	st := NewState()
	jobs := NewState()
	err1 := s.jobs.load(&jobs)
	if err1 != nil {
		err1 = fmt.Errorf("completed Jobs are not known: %w", err1)
	} else {
		maps.Copy(st.Jobs, jobs.Jobs)
		maps.Copy(st.Crons, jobs.Crons)
	}
	histories := map[string]*revisions.History{}
	err2 := s.histories.load(&histories)
	if err2 != nil {
		err2 = fmt.Errorf("earlier revisions of workloads are not known: %w", err2)
	} else {
		for id, h := range histories {
			if h != nil && !slices.Contains(h.Revisions, nil) {
				st.Histories[id] = h
			}
		}
	}
	return st, errors.Join(err1, err2)
}

// load decodes the file into a value, which is to be ignored after an error.
func (f *file) load(into any) error {
	b, err := atomicfile.Read(f.path, atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	} else if !errors.Is(err, atomicfile.ErrDamaged) {
		return err
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", f.path, err), atomicfile.SetAside(f.path, f.path+".broken"))
	}
	f.written = b
	return nil
}

// Save writes the state if it has changed. It survives a power cut.
func (s *Store) Save(st State) error {
	jobs, err1 := json.MarshalIndent(st, "", " ")
	histories, err2 := json.Marshal(st.Histories)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err2 = nil
	if len(st.Histories) > 0 || s.histories.written != nil {
		err2 = s.histories.save(histories)
	}
	return errors.Join(s.jobs.save(jobs), err2)
}

func (f *file) save(b []byte) error {
	if string(b) == string(f.written) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(f.path, b, 0o600); err != nil {
		return err
	}
	f.written = b
	return nil
}

// Differs reports whether b differs from a in more than elapsed times: then it must be stored before pods are changed. Elapsed times are
// stored with it.
func Differs(a, b State) bool {
	return !maps.Equal(a.Histories, b.Histories) || !maps.EqualFunc(a.Jobs, b.Jobs, sameJob) || !maps.EqualFunc(a.Crons, b.Crons, func(x, y *CronJob) bool {
		if !x.Last.Equal(y.Last) || x.UID != y.UID || len(x.Runs) != len(y.Runs) || x.Origin != y.Origin {
			return false
		}
		for i := range x.Runs {
			if x.Runs[i].Name != y.Runs[i].Name || !sameJob(x.Runs[i].Job, y.Runs[i].Job) {
				return false
			}
		}
		return true
	})
}

// SameJob reports whether two states of a Job differ in elapsed times at most. Either may be nil.
func SameJob(a, b *Job) bool { return a == b || a != nil && b != nil && sameJob(a, b) }

func sameJob(a, b *Job) bool {
	x, y := *a, *b
	x.Ran, x.Since, x.At, y.Ran, y.Since, y.At = 0, 0, time.Time{}, 0, 0, time.Time{}
	return reflect.DeepEqual(x, y)
}
