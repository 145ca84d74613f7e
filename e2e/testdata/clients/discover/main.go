// Discover runs the discovery of targets of Prometheus in a cluster, and prints each change of a group of targets as a line of JSON.
//
//	discover KUBECONFIG    an empty KUBECONFIG is that of the pod
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	for _, role := range []kubernetes.Role{"pod", "service", "endpoints", "endpointslice", "node"} {
		groups := make(chan []*targetgroup.Group)
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case changed := <-groups:
					mu.Lock()
					for _, g := range changed {
						if err := out.Encode(group{role, g.Source, g.Labels, g.Targets}); err != nil {
							stop()
						}
					}
					mu.Unlock()
				}
			}
		})
		if err := discover(ctx, role, groups, &all); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	all.Wait()
}

// group is a group of targets.
type group struct {
	Role    kubernetes.Role  `json:"role"`
	Source  string           `json:"source"`
	Labels  model.LabelSet   `json:"labels"`
	Targets []model.LabelSet `json:"targets"`
}

// discover starts the discovery of a role, as Prometheus does.
func discover(ctx context.Context, role kubernetes.Role, groups chan<- []*targetgroup.Group, all *sync.WaitGroup) error {
	registry := prometheus.NewRegistry()
	conf := kubernetes.DefaultSDConfig
	conf.Role, conf.KubeConfig, conf.HTTPClientConfig = role, os.Args[1], config.DefaultHTTPClientConfig
	metrics := conf.NewDiscovererMetrics(registry, discovery.NewRefreshMetrics(registry))
	if err := metrics.Register(); err != nil {
		return err
	}
	d, err := conf.NewDiscoverer(discovery.DiscovererOptions{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Metrics: metrics})
	if err != nil {
		return err
	}
	all.Go(func() { d.Run(ctx, groups) })
	return nil
}
