package storm

import (
	"fmt"
	"reflect"
	"testing"
)

func tasksOf(seed uint64, client int) []task {
	p := newPlan(seed, client, 2)
	tasks := make([]task, 300)
	for i := range tasks {
		tasks[i] = p.next()
	}
	return tasks
}

// A storm can be asked for again, and no two clients do the same.
func TestThePlanDependsOnSeedAndClientAlone(t *testing.T) {
	t.Parallel()
	tasks := tasksOf(1, 1)
	if !reflect.DeepEqual(tasks, tasksOf(1, 1)) {
		t.Error("the same seed makes other plans")
	}
	keys := map[string]bool{}
	for _, others := range [][]task{tasks, tasksOf(1, 2), tasksOf(2, 1)} {
		for key := range keysOf(others) {
			if keys[key] {
				t.Errorf("two clients have key %s", key)
			}
			keys[key] = true
		}
	}
	if reflect.DeepEqual(tasksOf(1, 2)[0], tasks[0]) || reflect.DeepEqual(tasksOf(2, 1)[0], tasks[0]) {
		t.Error("two plans begin alike")
	}
}

func keysOf(tasks []task) map[string]bool {
	keys := map[string]bool{}
	for _, task := range tasks {
		for _, o := range task.orders {
			keys[o.key] = true
		}
	}
	return keys
}

// What is not sent cannot be answered, and what should be in a plan must be.
func TestThePlanSendsAllItHas(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, task := range tasksOf(1, 1) {
		sent := map[int]bool{}
		keys := map[string]bool{}
		for _, volley := range task.volleys {
			for _, s := range volley {
				for _, i := range s.orders {
					sent[i] = true
				}
				seen["torn"] = seen["torn"] || s.torn
				seen["hang-up"] = seen["hang-up"] || s.hangUp > 0
				seen["list"] = seen["list"] || len(s.orders) > 1
				seen["both instances"] = seen["both instances"] || s.instance == 1
			}
			seen["burst of 20"] = seen["burst of 20"] || len(volley) == burstMax && len(task.orders) == 1
		}
		for i, o := range task.orders {
			if !sent[i] {
				t.Errorf("%+v is never sent", o)
			}
			seen["two orders of a key"] = seen["two orders of a key"] || keys[o.key]
			seen[fmt.Sprint("action ", o.action)] = true
			seen["hopeless"] = seen["hopeless"] || o.hopeless
			keys[o.key] = true
		}
		seen["second volley"] = seen["second volley"] || len(task.volleys) > 1
	}
	for _, what := range []string{
		"torn", "hang-up", "list", "both instances", "burst of 20", "two orders of a key", "hopeless", "second volley",
		"action 0", "action 1", "action 2", "action 3", "action 4", "action 5", "action 6",
	} {
		if !seen[what] {
			t.Errorf("300 tasks have no %s", what)
		}
	}
}
