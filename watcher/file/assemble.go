package file

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
)

// assemble builds the Set of this moment.
func (s *Source) assemble(now time.Time) watcher.Set {
	set := watcher.Set{
		Source: s.cfg.Name, Unread: !s.read,
		Pods: make([]*manifests.Pod, 0, len(s.inputs)), Inputs: make([]model.Input, 0, len(s.inputs)+len(s.ignored)+1),
	}
	var missing []*input
	if s.order == nil {
		s.order = slices.SortedFunc(maps.Values(s.inputs), func(a, b *input) int { return cmp.Compare(a.path, b.path) })
		s.distinct = false
	}
	for _, in := range s.order {
		if !in.known {
			set.Unknown = append(set.Unknown, in.path)
		}
		if in.gone() {
			missing = append(missing, in)
			continue
		}
		set.Pods = append(set.Pods, in.content.Pods...)
		set.Objects = append(set.Objects, in.content.Objects...)
		set.Workloads = append(set.Workloads, in.content.Workloads...)
		if r, ok := in.report(now); ok {
			set.Inputs = append(set.Inputs, r)
		}
	}
	if !s.distinct {
		own := watcher.NewOwners(len(set.Pods))
		all := len(set.Pods) + len(set.Objects) + len(set.Workloads)
		set, _ = own.Claim(set)
		s.distinct = len(missing) == 0 && all == len(set.Pods)+len(set.Objects)+len(set.Workloads)
		addMissing(&set, now, missing, own)
	}
	set.Distinct = true
	set = set.WithoutOwned()
	set.Inputs = s.withPlaces(set.Inputs)
	return set
}

// addMissing adds inputs that are missing but not yet forgotten. They rank last and never conflict: a pod that is
// written in another file by now is that file's.
func addMissing(set *watcher.Set, now time.Time, missing []*input, own watcher.Owners) {
	for _, in := range missing {
		r, ok := in.report(now)
		free, _ := own.Claim(watcher.Set{Pods: in.content.Pods, Objects: in.content.Objects, Workloads: in.content.Workloads})
		set.Pods = append(set.Pods, free.Pods...)
		set.Objects = append(set.Objects, free.Objects...)
		set.Workloads = append(set.Workloads, free.Workloads...)
		r.Pods, r.Objects = watcher.Keys(free.Pods), append(watcher.ObjectNames(free.Objects), watcher.ObjectNames(free.Workloads)...)
		if ok {
			set.Inputs = append(set.Inputs, r)
		}
	}
}

// withPlaces adds the reports on what is not read and on the path itself, and sorts by input.
func (s *Source) withPlaces(reports []model.Input) []model.Input {
	reports = slices.AppendSeq(reports, maps.Values(s.ignored))
	path := s.path
	if s.deaf != nil {
		path.Errors = append(slices.Clone(path.Errors), watchWarning(&s.cfg, s.deaf))
	}
	if i := slices.IndexFunc(reports, func(r model.Input) bool { return r.Input == path.Input }); i < 0 {
		reports = append(reports, path)
	} else if path.State == model.InputUnreachable { // a single file: the path and the input are the same
		path.Pods = reports[i].Pods
		reports[i] = path
	}
	sort.Slice(reports, func(i, j int) bool { return reports[i].Input < reports[j].Input })
	return reports
}

// watchWarning returns why changes are noticed late, and what to do about it.
func watchWarning(cfg *Config, err error) string {
	line := fmt.Sprintf("%s: changes are only detected every %v: %v", cfg.Path, cfg.CheckFrequency, err)
	switch {
	case errors.Is(err, unix.EMFILE):
		line += "; raise fs.inotify.max_user_instances"
	case errors.Is(err, unix.ENOSPC):
		line += "; raise fs.inotify.max_user_watches"
	}
	return line
}

// listen sets up notifications if there are none. Without them the source works on, at the pace of CheckFrequency.
func (s *Source) listen() {
	if s.notify != nil {
		return
	}
	n, err := newNotifier()
	s.notify, s.deaf = n, err
}

func (s *Source) stopListening() {
	if s.notify != nil {
		s.notify.close()
		s.notify = nil
	}
}
