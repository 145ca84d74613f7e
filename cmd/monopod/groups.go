package main

import "monopod/internal/reference"

// groups lists the commands by task for `monopod help`; each command is in one group.
func groups() []reference.Group {
	return []reference.Group{
		{Title: "Inspect", Rows: []reference.Row{
			{Commands: "get"},
			{Commands: "describe"},
			{Commands: "why"},
			{Commands: "events"},
			{Commands: "logs"},
			{Commands: "top"},
			{Commands: "status"},
		}},
		{Title: "Change", Rows: []reference.Row{
			{Commands: "apply, delete", Text: "Apply manifests, delete applied objects"},
			{Commands: "scale"},
			{Commands: "restart"},
			{Commands: "rollout"},
			{Commands: "history, diff", Text: "List and compare the revisions of a pod"},
			{Commands: "rollback"},
			{Commands: "wait"},
		}},
		{Title: "Work inside containers", Rows: []reference.Row{
			{Commands: "exec, attach", Text: "Run a command in a container, attach to its main process"},
			{Commands: "debug"},
			{Commands: "cp"},
			{Commands: "port-forward"},
		}},
		{Title: "Run without a daemon", Rows: []reference.Row{
			{Commands: "once, down", Text: "Run pods to completion or readiness, remove kept pods"},
			{Commands: "up"},
		}},
		{Title: "Operate this machine", Rows: []reference.Row{
			{Commands: "install, uninstall", Text: "Install the systemd service, remove monopod and its pods"},
			{Commands: "run"},
			{Commands: "config"},
			{Commands: "kubeconfig"},
			{Commands: "images, pull", Text: "List, remove and pull images"},
			{Commands: "cordon, drain, undrain", Text: "Stop accepting new pods, stop all pods, resume"},
			{Commands: "cleanup"},
		}},
		{Title: "Learn", Rows: []reference.Row{
			{Commands: "validate"},
			{Commands: "docs"},
			{Commands: "completion, version, help", Text: "Print a script for the shell, the version, help"},
		}},
	}
}
