package control

// State is where a job stands with trimtab. Each is in exactly one; events alone move it.
type State string

// The states.
const (
	StateWatched  State = "watched"  // too little of it was read yet
	StateMeasured State = "measured" // what it does with its time is known, and nothing is lent
	StateLent     State = "lent"     // it uses more than its owner's limits, and how much is enough is not known
	StateSettled  State = "settled"  // what it can use is known, and it has it
	StateTrial    State = "trial"    // a plan that takes from somebody is being judged
	StateReturned State = "returned" // its loan was called in, or was of no use
	StateYielded  State = "yielded"  // somebody else decides: a foreign write, a hold, a pause, an opt-out
	StateEnded    State = "ended"
)

// Event moves a job from state to state.
type Event string

// The events.
const (
	EventRead     Event = "read"     // enough was read to tell what it does with its time
	EventLent     Event = "lent"     // a loan was written
	EventEnough   Event = "enough"   // nothing held it back for long enough to tell what it can use
	EventReturned Event = "returned" // nothing of its loan stands any more
	EventOpened   Event = "opened"   // a trial began
	EventJudged   Event = "judged"   // a trial ended
	EventYielded  Event = "yielded"  // somebody else decides
	EventReleased Event = "released" // nobody else does any more
	EventEnded    Event = "ended"    // the container ended
)

// transitions is the whole machine; a pair that is not in it changes nothing.
//
//trimtab:table only read
var transitions = map[State]map[Event]State{
	StateWatched:  {EventRead: StateMeasured, EventLent: StateLent, EventYielded: StateYielded, EventEnded: StateEnded},
	StateMeasured: {EventLent: StateLent, EventEnough: StateSettled, EventOpened: StateTrial, EventYielded: StateYielded, EventEnded: StateEnded},
	StateLent:     {EventEnough: StateSettled, EventReturned: StateReturned, EventYielded: StateYielded, EventEnded: StateEnded},
	StateSettled:  {EventLent: StateLent, EventReturned: StateReturned, EventOpened: StateTrial, EventYielded: StateYielded, EventEnded: StateEnded},
	StateTrial:    {EventJudged: StateSettled, EventLent: StateTrial, EventYielded: StateYielded, EventEnded: StateEnded},
	StateReturned: {EventLent: StateLent, EventEnough: StateSettled, EventOpened: StateTrial, EventYielded: StateYielded, EventEnded: StateEnded},
	StateYielded:  {EventReleased: StateWatched, EventEnded: StateEnded},
	StateEnded:    {},
}

// Next is the state after an event.
func (s State) Next(e Event) State {
	if to, ok := transitions[s][e]; ok {
		return to
	}
	return s
}

// mayTry reports whether a trial may open in a state: not while it is unknown what the job can
// use, since what a loan brings would be taken for what the plan did.
func (s State) mayTry() bool {
	_, ok := transitions[s][EventOpened]
	return ok
}
