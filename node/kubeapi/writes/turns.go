package writes

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxWrites is the maximum number of concurrent writes, maxUserWrites that of one user. Others wait.
	maxWrites     = 16
	maxUserWrites = 4
)

// turns bounds concurrent writes. Users take turns: one with many waiting writes does not delay the first of another.
type turns struct {
	mu      sync.Mutex
	running int
	byUser  map[string]int
	// waiting are the writes that wait, by user, oldest first; order are their users, the next one first.
	waiting map[string][]chan struct{}
	order   []string
}

func newTurns() *turns {
	return &turns{byUser: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// take waits for a turn, which the caller must end.
func (t *turns) take(ctx context.Context, user string) (end func(), err error) {
	granted := make(chan struct{})
	t.mu.Lock()
	if len(t.waiting[user]) == 0 {
		t.order = append(t.order, user)
	}
	t.waiting[user] = append(t.waiting[user], granted)
	t.grantLocked()
	t.mu.Unlock()
	end = func() { t.end(user) }
	select {
	case <-granted:
		return end, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.waiting[user], granted) { // granted at the same moment
		return end, nil
	}
	t.dropLocked(user, granted)
	return nil, context.Cause(ctx)
}

func (t *turns) end(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.byUser[user]--; t.byUser[user] == 0 {
		delete(t.byUser, user)
	}
	t.grantLocked()
}

// grantLocked lets as many writes run as may.
func (t *turns) grantLocked() {
	for t.running < maxWrites {
		at := slices.IndexFunc(t.order, func(user string) bool { return t.byUser[user] < maxUserWrites })
		if at < 0 {
			return
		}
		user := t.order[at]
		first := t.waiting[user][0]
		t.order = append(slices.Delete(t.order, at, at+1), user) // the next turn is that of another user
		t.dropLocked(user, first)
		t.running++
		t.byUser[user]++
		close(first)
	}
}

// dropLocked removes a waiting write.
func (t *turns) dropLocked(user string, one chan struct{}) {
	left := slices.DeleteFunc(t.waiting[user], func(c chan struct{}) bool { return c == one })
	if len(left) > 0 {
		t.waiting[user] = left
		return
	}
	delete(t.waiting, user)
	t.order = slices.DeleteFunc(t.order, func(u string) bool { return u == user })
}
