package board

import (
	"fmt"
	"slices"

	"monopod/internal/model"
	"monopod/node"
	"monopod/runner/workload"
)

// NoteClashes takes down which pods of workloads are not run because another one has their name.
func (b *Board) NoteClashes(all []workload.Clash) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if !slices.Equal(b.clashes, all) {
		b.clashes = all
		b.notifyLocked()
	}
}

// withClashes returns reports with what is said of the inputs of such pods. It does not change them.
func withClashes(reports []model.Input, clashes []workload.Clash) []model.Input {
	if len(clashes) == 0 {
		return reports
	}
	all := slices.Clone(reports)
	for _, c := range clashes {
		i := slices.IndexFunc(all, func(r model.Input) bool { return r.Source == c.At.Source && r.Input == c.At.File })
		if i < 0 {
			continue
		}
		r := &all[i]
		if r.State == model.InputAccepted {
			r.State = model.InputConflict
		}
		line := fmt.Sprintf("%s: the pod %s of this workload is not run: another one of that name is defined in %s; give one of them another name", node.Position(c.At), c.Pod, node.Position(c.By))
		r.Errors = append(slices.Clone(r.Errors), line)
	}
	return all
}
