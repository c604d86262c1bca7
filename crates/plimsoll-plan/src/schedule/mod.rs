//! A schedule that can be edited: launches in an order, and the instances of buffers they work on.
//!
//! A buffer that is dropped and made again has several *instances*, one after another, each with a lifetime of
//! its own. Lifetimes are never stored: they follow from which launches use an instance. So there are only a
//! few edits (insert a launch, split an instance, join two), any sequence of them leaves a schedule that
//! computes the same, and undoing one is another.

pub(crate) mod expand;
mod list;
pub(crate) mod live;
mod neighbours;
pub(crate) mod order;
pub(crate) mod search_context;
pub(crate) mod simulate;

use crate::schedule::list::List;
use crate::schedule::neighbours::Neighbours;
use crate::schedule::search_context::SearchContext;
use plimsoll_ir::{Buffer, BufferIndex, Home, Keep, Kernel, KernelIndex, LaunchSource};

/// A launch of a [`Schedule`]; it keeps its number when others are inserted.
pub(crate) type LaunchId = u32;

/// One life of a buffer. Instance `b` is the first of buffer `b`.
pub(crate) type InstanceId = u32;

/// One launch.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// Launches run in the order of their keys.
    pub(crate) key: u64,
    pub(crate) source: LaunchSource,
    pub(crate) reads: List,
    pub(crate) writes: List,
    /// Whether kernels rather wait for this copy than let it take bytes that are not there.
    pub(crate) hurried: bool,
}

/// One life of a buffer.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) buffer: BufferIndex,
    pub(crate) home: Home,
    pub(crate) keep: Keep,
    /// The launches that touch it, in order.
    pub(crate) uses: List,
}

/// The distance between the keys of neighbours: that many halvings find room for another launch.
const ROOM: u32 = 40;

/// Where a launch can be inserted: the key it gets, and the launch it comes right before.
#[derive(Debug, Clone, Copy)]
struct Place {
    key: u64,
    next: Option<LaunchId>,
}

/// Launches in an order, and the instances they work on.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) launches: Vec<Launch>,
    pub(crate) instances: Vec<Instance>,
    /// The launches in the order of their keys, without those that were removed.
    order: Neighbours,
    /// The instances of each buffer, in the order of their first use.
    of_buffer: Vec<List>,
}

impl Schedule {
    /// The kernels in an order, each buffer with one life.
    pub(crate) fn new(context: &SearchContext<'_>, order: &[KernelIndex]) -> Schedule {
        let work = context.work;
        let instance = |(b, buffer): (usize, &Buffer)| Instance {
            buffer: b as u32,
            home: buffer.home,
            keep: buffer.keep,
            uses: List::default(),
        };
        let mut schedule = Schedule {
            launches: Vec::with_capacity(order.len()),
            instances: work.buffers.iter().enumerate().map(instance).collect(),
            order: Neighbours::default(),
            of_buffer: (0..work.buffers.len() as u32).map(|b| vec![b].into()).collect(),
        };
        for (position, &k) in order.iter().enumerate() {
            let kernel = &work.kernels[k as usize];
            let place = Place { key: key_of(position), next: None };
            schedule.insert(place, LaunchSource::Kernel(k), kernel.reads.clone(), kernel.writes.clone());
        }
        for b in 0..work.buffers.len() as u32 {
            let buffer = &work.buffers[b as usize];
            if buffer.home == Home::Host && buffer.keep == Keep::Always {
                schedule.reach_from_host(b);
            }
        }
        schedule
    }

    /// The launches, in the order they run.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = LaunchId> {
        self.order.iter()
    }

    /// How many launches there are.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn key(&self, launch: LaunchId) -> u64 {
        self.launches[launch as usize].key
    }

    /// Gives neighbours room for others between them. Returns the launches in order.
    pub(crate) fn spread(&mut self) -> Vec<LaunchId> {
        let order: Vec<LaunchId> = self.in_order().collect();
        for (position, &launch) in order.iter().enumerate() {
            self.launches[launch as usize].key = key_of(position);
        }
        order
    }

    /// The keys of an instance's first and last use.
    pub(crate) fn span(&self, instance: InstanceId) -> Option<(u64, u64)> {
        let uses = &self.instances[instance as usize].uses;
        Some((self.key(*uses.first()?), self.key(*uses.last()?)))
    }

    /// The instance of a buffer that is in device memory both before and at `key`.
    pub(crate) fn alive(&self, buffer: BufferIndex, key: u64) -> Option<InstanceId> {
        self.on_device(buffer).find(|&i| self.span(i).is_some_and(|(first, last)| first < key && key <= last))
    }

    /// Whether a copy from or to an instance has begun before `key` and is waited for after it.
    pub(crate) fn in_flight(&self, instance: InstanceId, key: u64) -> bool {
        let uses = &self.instances[instance as usize].uses;
        let next = uses.partition_point(|&u| self.key(u) < key);
        // Between a copy and its wait there may be other copies and reads, but at most one copy is under way.
        let is = |u: &LaunchId, source: LaunchSource| self.launches[*u as usize].source == source;
        let begun =
            uses[..next].iter().rev().find(|u| is(u, LaunchSource::Copy) || is(u, LaunchSource::Wait));
        begun.is_some_and(|u| is(u, LaunchSource::Copy))
    }

    /// The copy that brings an instance and the wait for it, if that is after `key`.
    pub(crate) fn arrival(&self, instance: InstanceId, key: u64) -> Option<(LaunchId, LaunchId)> {
        let uses = &self.instances[instance as usize].uses;
        let &copy = uses.first().filter(|&&u| self.launches[u as usize].source == LaunchSource::Copy)?;
        let &wait = uses.iter().find(|&&u| self.awaits(u, instance))?;
        (self.key(wait) > key).then_some((copy, wait))
    }

    /// Lets an instance that a copy brings be there before a launch.
    pub(crate) fn arrive_before(&mut self, instance: InstanceId, launch: LaunchId) -> Option<()> {
        let Some((copy, wait)) = self.arrival(instance, self.key(launch)) else { return Some(()) };
        for moved in [copy, wait].into_iter().filter(|&l| self.key(l) > self.key(launch)).collect::<Vec<_>>()
        {
            let Place { key, next } = self.before(launch)?;
            self.order.remove(moved);
            self.order.insert(moved, next);
            self.launches[moved as usize].key = key;
            let Launch { reads, writes, .. } = self.launches[moved as usize].clone();
            for instance in touched_instances(&reads, &writes) {
                self.sort_uses(instance);
                self.sort_instances(self.instances[instance as usize].buffer);
            }
        }
        Some(())
    }

    /// The last instance of a buffer in device memory whose uses are all before `key`.
    pub(crate) fn earlier(&self, buffer: BufferIndex, key: u64) -> Option<InstanceId> {
        self.on_device(buffer).filter(|&i| self.span(i).is_some_and(|(_, last)| last < key)).last()
    }

    /// The first instance of a buffer in device memory whose uses are all after `key`.
    pub(crate) fn later(&self, buffer: BufferIndex, key: u64) -> Option<InstanceId> {
        self.on_device(buffer).find(|&i| self.span(i).is_some_and(|(first, _)| first > key))
    }

    /// The instances of a buffer in device memory, in order.
    pub(crate) fn on_device(&self, buffer: BufferIndex) -> impl Iterator<Item = InstanceId> {
        let all = self.of_buffer[buffer as usize].iter().copied();
        all.filter(|&i| self.instances[i as usize].home == Home::Device)
    }

    /// The launch that makes an instance, if it was inserted.
    pub(crate) fn inserted_maker(&self, instance: InstanceId) -> Option<LaunchId> {
        let &first = self.instances[instance as usize].uses.first()?;
        let launch = &self.launches[first as usize];
        let made = launch.writes.contains(&instance) && !matches!(launch.source, LaunchSource::Kernel(_));
        made.then_some(first)
    }

    /// Inserts a launch right before another, with fresh instances for what it writes. Later uses of what it
    /// writes become uses of those. `None` if keys leave no room until the next [`Schedule::spread`].
    pub(crate) fn insert_before(
        &mut self,
        anchor: LaunchId,
        source: LaunchSource,
        reads: Vec<InstanceId>,
        writes: &[BufferIndex],
    ) -> Option<LaunchId> {
        let place = self.before(anchor)?;
        let writes = writes.iter().map(|&b| self.begin(b, place.key)).collect();
        Some(self.insert(place, source, reads, writes))
    }

    /// Copies an instance to the host after one use and back before the next. Both transfers are as short as they
    /// can be: kernels wait for all of them, until they are [spread](crate::trips).
    pub(crate) fn offload(&mut self, instance: InstanceId, after: LaunchId, before: LaunchId) -> Option<()> {
        let buffer = self.instances[instance as usize].buffer;
        if !self.has_room(after) || !self.has_room(before) {
            return None;
        }
        let host = self.fresh(buffer, Home::Host, Keep::WhileUsed);
        let copy = self.insert(self.after(after)?, LaunchSource::Copy, vec![instance], vec![host]);
        self.insert(self.after(copy)?, LaunchSource::Wait, vec![instance, host], vec![]);
        self.fetch(host, buffer, before)
    }

    /// Copies what a host instance holds to a fresh instance, right before a launch.
    pub(crate) fn fetch(&mut self, host: InstanceId, buffer: BufferIndex, before: LaunchId) -> Option<()> {
        if !self.has_room(before) {
            return None;
        }
        let copy = self.insert_before(before, LaunchSource::Copy, vec![host], &[buffer])?;
        let fetched = self.launches[copy as usize].writes[0];
        self.insert(self.before(before)?, LaunchSource::Wait, vec![host, fetched], vec![]);
        self.sort_instances(buffer);
        Some(())
    }

    /// Lets an instance that was made for the sake of a later use, if there is one, be the same as this.
    pub(crate) fn join_later(&mut self, instance: InstanceId) {
        let Some((_, last)) = self.span(instance) else { return };
        let later = self.later(self.instances[instance as usize].buffer, last);
        if let Some(later) = later.filter(|&l| self.inserted_maker(l).is_some()) {
            self.join(instance, later);
        }
    }

    /// Lets `later` be the same instance as `earlier` of its buffer, and removes what made it if nothing else
    /// needs that.
    pub(crate) fn join(&mut self, earlier: InstanceId, later: InstanceId) {
        let maker = self.inserted_maker(later);
        let uses = std::mem::take(&mut self.instances[later as usize].uses);
        let (kept, moved): (Vec<LaunchId>, Vec<LaunchId>) =
            uses.iter().partition(|&&u| Some(u) == maker || self.awaits(u, later));
        self.rename(&moved, later, earlier);
        let keep = self.instances[later as usize].keep;
        let into = &mut self.instances[earlier as usize];
        into.uses.edit(|uses| uses.extend(moved));
        if keep == Keep::ToEnd {
            into.keep = keep;
        }
        self.sort_uses(earlier);
        self.instances[later as usize].uses = kept.into();
        if let Some(maker) = maker {
            self.sweep(maker);
        }
        self.sort_instances(self.instances[earlier as usize].buffer);
    }

    /// Moves a state to the host: it is fetched for the first launch that touches it, and stored after the last
    /// that writes it.
    pub(crate) fn offload_state(&mut self, buffer: BufferIndex) -> Option<()> {
        let uses = self.instances[buffer as usize].uses.clone();
        let &first = uses.first()?;
        let last_writer = uses.iter().copied().rfind(|&u| self.launches[u as usize].writes.contains(&buffer));
        if !self.has_room(first) || last_writer.is_some_and(|writer| !self.has_room(writer)) {
            return None;
        }
        let device = self.fresh(buffer, Home::Device, Keep::WhileUsed);
        self.instances[buffer as usize].home = Home::Host;
        self.instances[buffer as usize].uses = List::default();
        self.rename(&uses, buffer, device);
        self.instances[device as usize].uses = uses;
        self.insert(self.before(first)?, LaunchSource::Copy, vec![buffer], vec![device]);
        self.insert(self.before(first)?, LaunchSource::Wait, vec![buffer, device], vec![]);
        if let Some(writer) = last_writer {
            let copy = self.insert(self.after(writer)?, LaunchSource::Copy, vec![device], vec![buffer]);
            self.insert(self.after(copy)?, LaunchSource::Wait, vec![device, buffer], vec![]);
        }
        Some(())
    }

    /// Lets a state that was moved to the host be in device memory again.
    pub(crate) fn bring_home(&mut self, buffer: BufferIndex) {
        for &copy in std::mem::take(&mut self.instances[buffer as usize].uses).iter() {
            self.order.remove(copy);
        }
        let mut uses = vec![];
        for &instance in std::mem::replace(&mut self.of_buffer[buffer as usize], vec![buffer].into()).iter() {
            let of = std::mem::take(&mut self.instances[instance as usize].uses);
            let of: Vec<LaunchId> = of.iter().copied().filter(|&u| self.order.contains(u)).collect();
            self.rename(&of, instance, buffer);
            uses.extend(of);
        }
        self.instances[buffer as usize].home = Home::Device;
        self.instances[buffer as usize].uses = uses.into();
        self.sort_uses(buffer);
    }

    /// Whether a launch that computes writes a state before `key`.
    pub(crate) fn is_updated(&self, buffer: BufferIndex, key: u64) -> bool {
        self.on_device(buffer).any(|i| {
            let uses = self.instances[i as usize].uses.iter();
            uses.map(|&u| &self.launches[u as usize])
                .any(|l| l.key < key && l.source.computes() && l.writes.contains(&i))
        })
    }

    /// Runs the launches in another order, which must compute the same.
    pub(crate) fn reorder(&mut self, order: &[LaunchId]) {
        for (position, &launch) in order.iter().enumerate() {
            self.launches[launch as usize].key = key_of(position);
        }
        self.order.arrange(order);
        for instance in 0..self.instances.len() as InstanceId {
            if self.instances[instance as usize].uses.len() > 1 {
                self.sort_uses(instance);
            }
        }
        for buffer in 0..self.of_buffer.len() as BufferIndex {
            if self.of_buffer[buffer as usize].len() > 1 {
                self.sort_instances(buffer);
            }
        }
    }

    /// Puts copies around every launch that touches a state whose home is the host.
    fn reach_from_host(&mut self, buffer: BufferIndex) {
        let users = std::mem::take(&mut self.instances[buffer as usize].uses);
        for &user in users.iter() {
            let device = self.fresh(buffer, Home::Device, Keep::WhileUsed);
            self.rename(&[user], buffer, device);
            self.instances[device as usize].uses = vec![user].into();
            let launch = &self.launches[user as usize];
            let (read, written) = (launch.reads.contains(&device), launch.writes.contains(&device));
            // Room is left here: a kernel of the step has few states, and keys are fresh.
            if read && let Some(place) = self.before(user) {
                self.insert(place, LaunchSource::Copy, vec![buffer], vec![device]);
                if let Some(place) = self.before(user) {
                    self.insert(place, LaunchSource::Wait, vec![buffer, device], vec![]);
                }
            }
            if written && let Some(place) = self.after(user) {
                let copy = self.insert(place, LaunchSource::Copy, vec![device], vec![buffer]);
                if let Some(place) = self.after(copy) {
                    self.insert(place, LaunchSource::Wait, vec![device, buffer], vec![]);
                }
            }
        }
    }

    /// The instance that a launch at `key` begins: what follows of one that lives across it, or one of its own.
    fn begin(&mut self, buffer: BufferIndex, key: u64) -> InstanceId {
        let across = self.alive(buffer, key);
        let across =
            across.filter(|&i| self.instances[i as usize].keep != Keep::ToEnd && !self.in_flight(i, key));
        let fresh = self.fresh(buffer, Home::Device, Keep::WhileUsed);
        if let Some(old) = across {
            let uses = std::mem::take(&mut self.instances[old as usize].uses);
            let (before, after): (Vec<LaunchId>, Vec<LaunchId>) =
                uses.iter().partition(|&&u| self.key(u) < key);
            self.instances[old as usize].uses = before.into();
            self.rename(&after, old, fresh);
            self.instances[fresh as usize].uses = after.into();
        }
        fresh
    }

    fn fresh(&mut self, buffer: BufferIndex, home: Home, keep: Keep) -> InstanceId {
        let id = self.instances.len() as InstanceId;
        self.instances.push(Instance { buffer, home, keep, uses: List::default() });
        self.of_buffer[buffer as usize].edit(|instances| instances.push(id));
        id
    }

    fn insert(
        &mut self,
        Place { key, next }: Place,
        source: LaunchSource,
        reads: Vec<InstanceId>,
        writes: Vec<InstanceId>,
    ) -> LaunchId {
        let id = self.launches.len() as LaunchId;
        self.order.insert(id, next);
        let touched: Vec<InstanceId> = touched_instances(&reads, &writes);
        let (reads, writes) = (reads.into(), writes.into());
        self.launches.push(Launch { key, source, reads, writes, hurried: false });
        for instance in touched {
            let uses = &self.instances[instance as usize].uses;
            let at = uses.partition_point(|&u| self.launches[u as usize].key < key);
            self.instances[instance as usize].uses.edit(|uses| uses.insert(at, id));
        }
        if !matches!(source, LaunchSource::Kernel(_)) {
            for i in 0..self.launches[id as usize].writes.len() {
                let instance = self.launches[id as usize].writes[i];
                self.sort_instances(self.instances[instance as usize].buffer);
            }
        }
        id
    }

    /// Whether a launch waits for an instance to arrive.
    pub(crate) fn awaits(&self, launch: LaunchId, instance: InstanceId) -> bool {
        let launch = &self.launches[launch as usize];
        launch.source == LaunchSource::Wait && launch.reads[1] == instance
    }

    /// Removes every inserted launch that makes nothing that is used.
    pub(crate) fn sweep_all(&mut self) {
        let order: Vec<LaunchId> = self.in_order().collect();
        for launch in order.into_iter().rev() {
            if self.order.contains(launch) && self.launches[launch as usize].source != LaunchSource::Wait {
                self.sweep(launch);
            }
        }
    }

    /// Removes an inserted launch that makes nothing that is used, the waits for it, and what only it needed.
    fn sweep(&mut self, launch: LaunchId) {
        let Launch { source, reads, writes, .. } = self.launches[launch as usize].clone();
        let useless = |&w: &InstanceId| {
            let instance = &self.instances[w as usize];
            instance.keep == Keep::WhileUsed
                && instance.uses.iter().all(|&u| u == launch || self.awaits(u, w))
        };
        if matches!(source, LaunchSource::Kernel(_)) || !writes.iter().all(useless) {
            return;
        }
        let waits: Vec<LaunchId> = writes
            .iter()
            .flat_map(|&w| self.instances[w as usize].uses.iter().copied())
            .filter(|&u| u != launch)
            .collect();
        for wait in waits {
            let reads = self.launches[wait as usize].reads.clone();
            self.order.remove(wait);
            for &instance in reads.iter() {
                self.instances[instance as usize].uses.edit(|uses| uses.retain(|&u| u != wait));
            }
        }
        self.order.remove(launch);
        for instance in touched_instances(&reads, &writes) {
            self.instances[instance as usize].uses.edit(|uses| uses.retain(|&u| u != launch));
        }
        for &w in writes.iter() {
            let buffer = self.instances[w as usize].buffer;
            self.of_buffer[buffer as usize].edit(|instances| instances.retain(|&i| i != w));
        }
        for &read in reads.iter() {
            if let Some(maker) = self.inserted_maker(read) {
                self.sweep(maker);
            }
        }
    }

    fn rename(&mut self, launches: &[LaunchId], from: InstanceId, to: InstanceId) {
        for &launch in launches {
            let Launch { reads, writes, .. } = &mut self.launches[launch as usize];
            reads.replace(from, to);
            writes.replace(from, to);
        }
    }

    fn sort_uses(&mut self, instance: InstanceId) {
        let uses = &self.instances[instance as usize].uses;
        if !uses.is_sorted_by(|&a, &b| self.key(a) < self.key(b)) {
            let mut uses = uses.to_vec();
            uses.sort_by_key(|&u| self.key(u));
            uses.dedup();
            self.instances[instance as usize].uses = uses.into();
        }
    }

    fn sort_instances(&mut self, buffer: BufferIndex) {
        let first = |i: &InstanceId| self.span(*i).map_or(0, |(first, _)| first);
        let instances = &self.of_buffer[buffer as usize];
        if !instances.is_sorted_by_key(first) {
            let mut instances = instances.to_vec();
            instances.sort_by_key(first);
            self.of_buffer[buffer as usize] = instances.into();
        }
    }

    /// Whether a few launches can be put right before and right after one.
    fn has_room(&self, launch: LaunchId) -> bool {
        const FEW: u64 = 1 << 8;
        let key = self.key(launch);
        let before = self.order.before(launch).map_or(0, |l| self.key(l));
        let after = self.order.after(launch).map_or(u64::MAX, |l| self.key(l));
        key - before > FEW && after - key > FEW
    }

    /// A place between a launch and the one before it.
    fn before(&self, launch: LaunchId) -> Option<Place> {
        let key = self.key(launch);
        let before = self.order.before(launch).map_or(0, |l| self.key(l));
        (key - before > 1).then(|| Place { key: before.midpoint(key), next: Some(launch) })
    }

    /// A place between a launch and the one after it.
    fn after(&self, launch: LaunchId) -> Option<Place> {
        let key = self.key(launch);
        match self.order.after(launch) {
            Some(next) => {
                let after = self.key(next);
                (after - key > 1).then(|| Place { key: key.midpoint(after), next: Some(next) })
            }
            None => Some(Place { key: key + (1 << ROOM), next: None }),
        }
    }

    /// The instance of the same buffer, in device memory, that ends before this one begins.
    pub(crate) fn predecessor(&self, instance: InstanceId) -> Option<InstanceId> {
        let (first, _) = self.span(instance)?;
        self.earlier(self.instances[instance as usize].buffer, first)
    }

    /// The pairs of a written and a read instance that may share an address.
    pub(crate) fn in_place<'s>(
        &'s self,
        context: &'s SearchContext<'_>,
        launch: &'s Launch,
    ) -> impl Iterator<Item = (InstanceId, InstanceId)> + 's {
        let of = |list: &[InstanceId], buffer: BufferIndex| {
            list.iter().copied().find(|&i| self.instances[i as usize].buffer == buffer)
        };
        let pairs = context.kernel(launch.source).in_place.iter();
        pairs.filter_map(move |&(w, r)| Some((of(&launch.writes, w)?, of(&launch.reads, r)?)))
    }
}

fn key_of(position: usize) -> u64 {
    (position as u64 + 1) << ROOM
}

fn touched_instances(reads: &[InstanceId], writes: &[InstanceId]) -> Vec<InstanceId> {
    let kernel = Kernel { reads: reads.to_vec(), writes: writes.to_vec(), ..Kernel::default() };
    kernel.operands().collect()
}
