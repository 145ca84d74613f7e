package attach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/cli/lookup"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// logSource is one log to print.
type logSource struct {
	key       manifests.Key
	container string
}

// prefix returns the prefix of lines with --prefix, as in kubectl.
func (s logSource) prefix() string {
	return printer.Sprintf("[pod/%s/%s] ", s.key.Name, s.container)
}

// logSources returns the containers whose logs are printed.
func (p Commands) logSources(o *logsOptions, pods []corev1.Pod) []logSource {
	var all []logSource
	for i := range pods {
		pod := &pods[i]
		key := manifests.Key{Namespace: pod.Namespace, Name: pod.Name}
		switch {
		case o.allContainers:
			for _, c := range node.ContainerNames(pod) {
				all = append(all, logSource{key, c})
			}
		case o.container != "":
			all = append(all, logSource{key, o.container})
		default:
			all = append(all, logSource{key, p.defaultContainer(pod)})
		}
	}
	return all
}

// selectedPods returns the pods selected by -l.
func selectedPods(ctx context.Context, c *localclient.Client, o *logsOptions) ([]corev1.Pod, error) {
	chosen, err := lookup.ParseSelector(o.selector)
	if err != nil {
		return nil, err
	}
	list, err := c.Pods(ctx, o.Namespace)
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range list.Items {
		if chosen.Matches(labels.Set(list.Items[i].Labels)) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}

// maxFollowed is the maximum number of logs followed concurrently.
const maxFollowed = 20

// manyLogs prints logs one after the other, or with --follow concurrently, line by line. An unreadable log does not prevent others from
// being printed.
func (p Commands) manyLogs(ctx context.Context, c *localclient.Client, o *logsOptions, q url.Values, all []logSource) error {
	if o.follow && len(all) > maxFollowed {
		return program.Usagef("--follow prints at most %d logs, these are %d; select fewer pods", maxFollowed, len(all))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, s := range all {
		show := func() {
			if err := p.oneLog(ctx, c, logJob{o: o, q: q, from: s, mu: &mu}); err != nil && ctx.Err() == nil {
				errs[i] = fmt.Errorf("pod %s, container %s: %w", s.key, s.container, err)
			}
		}
		if !o.follow {
			show()
			continue
		}
		wg.Go(show)
	}
	wg.Wait()
	return errors.Join(errs...)
}

// logJob is one of several logs to print.
type logJob struct {
	o    *logsOptions
	q    url.Values
	from logSource
	// mu is held while a line is printed.
	mu *sync.Mutex
}

// oneLog prints a log line by line. A line longer than the buffer is printed in parts.
func (p Commands) oneLog(ctx context.Context, c *localclient.Client, j logJob) error {
	q := maps.Clone(j.q)
	q.Set("container", j.from.container)
	body, err := c.Log(ctx, j.from.key.Namespace, j.from.key.Name, q)
	if err != nil {
		return err
	}
	defer body.Close()
	prefix := ""
	if j.o.prefix {
		prefix = j.from.prefix()
	}
	lines := bufio.NewReaderSize(body, 64<<10)
	for begins := true; ; {
		part, err := lines.ReadSlice('\n')
		if len(part) > 0 {
			j.mu.Lock()
			if begins {
				_, _ = io.WriteString(p.Raw(), prefix)
			}
			_, _ = p.Raw().Write(part)
			j.mu.Unlock()
			begins = part[len(part)-1] == '\n'
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read log: %w", err)
		}
	}
}
