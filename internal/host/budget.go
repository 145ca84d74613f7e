package host

import (
	"cmp"

	"monopod/internal/config"
	"monopod/node/budget"
)

// LeaveBudget removes the cgroups of a monopod process that has exited.
func LeaveBudget(sys budget.System, cfg *config.Config) error {
	agent, shims := budget.Names(cfg.CgroupRoot)
	return sys.Leave(cmp.Or(cfg.KubeletCgroups, agent), shims)
}
