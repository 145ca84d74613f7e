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

// State is the persistent state of Jobs and CronJobs, by their id.
type State struct {
	Jobs  map[string]*JobState  `json:"jobs,omitempty"`
	Crons map[string]*CronState `json:"crons,omitempty"`
}

// JobState is the progress of one run of a Job.
type JobState struct {
	// Origin is where the Job is written: the state belongs to that document only.
	Origin manifests.Origin `json:"origin"`
	// Revision is the revision of the template: another revision is another run.
	Revision string `json:"revision"`
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

	// at is when Ran or Since was last updated. It is not stored, because it is specific to this process.
	at time.Time
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

	// retry is when the next attempt may begin. It is not stored: after a restart it begins at once.
	retry time.Time
}

// CronState is the persistent state of a CronJob.
type CronState struct {
	Origin manifests.Origin `json:"origin"`
	// Last is the latest scheduled time that was processed.
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

// clone copies the parts that Expand may change.
func (j *JobState) clone() *JobState {
	c := *j
	c.Slots, c.Ended = append([]Slot(nil), j.Slots...), append([]string(nil), j.Ended...)
	return &c
}

// keep carries over the state of workloads that are missing now but may come back, because their input has not been read in this run.
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
	// written is the content of the file; nil if unknown.
	written []byte
}

// NewStore returns the store in a file. It does no I/O.
func NewStore(path string) *Store { return &Store{path: path} }

// Load reads the state. A missing file is an empty state; an invalid one is set aside.
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
			errors.Join(fmt.Errorf("completed Jobs are not known: %s: %w", s.path, err), atomicfile.SetAside(s.path, s.path+".broken"))
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

// Save writes the state if it has changed. It survives a power cut.
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

// progress reports whether b differs from a in more than elapsed times: then it must be stored before pods are changed. Elapsed times are
// stored with it.
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
