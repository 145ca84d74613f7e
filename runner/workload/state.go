package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"monopod/internal/atomicfile"
	"monopod/manifests"
)

// State is what must be remembered of Jobs and CronJobs, by their id.
type State struct {
	Jobs  map[string]*JobState  `json:"jobs,omitempty"`
	Crons map[string]*CronState `json:"crons,omitempty"`
}

// JobState is how far one run of a Job has come.
type JobState struct {
	// Origin is where the Job is written: what is noted goes with its document only.
	Origin manifests.Origin `json:"origin"`
	// Revision is that of the template: another one is another run.
	Revision string `json:"revision"`
	// Slots are the pods to complete, by number.
	Slots []Slot `json:"slots,omitempty"`
	// Failed counts pods that have failed.
	Failed int `json:"failed,omitempty"`
	// Ran is how long it has been going on, without the time in which monopod was away.
	Ran time.Duration `json:"ran,omitempty"`
	// Finished is Complete or Failed; Reason says why.
	Finished string `json:"finished,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Since is for how long it has been finished, counted like Ran.
	Since time.Duration `json:"since,omitempty"`
	// Ended are the names of the last pods that ended, latest last: their logs are kept.
	Ended []string `json:"ended,omitempty"`

	// at is when Ran or Since was last counted. It is not stored: it is of this process.
	at time.Time
}

// Ends of a Job.
const (
	Complete = "Complete"
	Failed   = "Failed"
)

// Slot is one completion of a Job.
type Slot struct {
	Done bool `json:"done,omitempty"`
	// Attempt counts the pods that failed at it.
	Attempt int `json:"attempt,omitempty"`
	// Started says that the pod of this attempt has been asked for.
	Started bool `json:"started,omitempty"`

	// retry is when the next attempt may begin; not stored, a restart tries at once.
	retry time.Time
}

// CronState is the memory of a CronJob.
type CronState struct {
	Origin manifests.Origin `json:"origin"`
	// Last is the latest time of its schedule that was dealt with.
	Last time.Time `json:"last"`
	// Runs are its Jobs, oldest first.
	Runs []Run `json:"runs,omitempty"`
}

// Run is one Job of a CronJob.
type Run struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	Job  *JobState `json:"job"`
}

// clone copies what Expand is about to change.
func (j *JobState) clone() *JobState {
	c := *j
	c.Slots, c.Ended = append([]Slot(nil), j.Slots...), append([]string(nil), j.Ended...)
	return &c
}

// keep carries over what is noted of workloads that are not there now but may come back: their input has not been
// read in this run.
func (s State) keep(old State, removable func(manifests.Origin) bool) {
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
}

// Store keeps a State in a file.
type Store struct {
	path string
	// written is what the file says; nil: not known.
	written []byte
}

// NewStore returns the store of a file. It does no I/O.
func NewStore(path string) *Store { return &Store{path: path} }

// Load reads the state. A file that is missing is an empty one; one that cannot be understood is set aside.
func (s *Store) Load() (State, error) {
	st := State{Jobs: map[string]*JobState{}, Crons: map[string]*CronState{}}
	b, err := atomicfile.Read(s.path, atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &st)
	} else if !errors.Is(err, atomicfile.ErrDamaged) {
		return st, err
	}
	if err != nil {
		return State{Jobs: map[string]*JobState{}, Crons: map[string]*CronState{}},
			errors.Join(fmt.Errorf("what Jobs have done is not known: %s: %w", s.path, err), atomicfile.SetAside(s.path, s.path+".broken"))
	}
	if st.Jobs == nil {
		st.Jobs = map[string]*JobState{}
	}
	if st.Crons == nil {
		st.Crons = map[string]*CronState{}
	}
	s.written = b
	return st, nil
}

// Save writes the state if it has changed, so that it survives a power cut.
func (s *Store) Save(st State) error {
	b, err := json.MarshalIndent(st, "", " ")
	if err != nil {
		return err
	}
	if string(b) == string(s.written) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(s.path, b, 0o600); err != nil {
		return err
	}
	s.written = b
	return nil
}

// progress says whether b notes more than a besides how long things took: then it must be stored before pods are
// touched. Durations are stored along.
func progress(a, b State) bool {
	return !maps.EqualFunc(a.Jobs, b.Jobs, sameJob) || !maps.EqualFunc(a.Crons, b.Crons, func(x, y *CronState) bool {
		if !x.Last.Equal(y.Last) || len(x.Runs) != len(y.Runs) || x.Origin != y.Origin {
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

func sameJob(a, b *JobState) bool {
	x, y := *a, *b
	x.Ran, x.Since, x.at, y.Ran, y.Since, y.at = 0, 0, time.Time{}, 0, 0, time.Time{}
	return reflect.DeepEqual(x, y)
}
