// The page of a plan alone.

const { plan } = meta, figures = element('figures');
figure(figures, 'Arena', words(plan.peak_bytes), `${grouped(plan.peak_bytes)} bytes`);
if (plan.budget_bytes) figure(figures, 'Budget', words(plan.budget_bytes), `${grouped(plan.budget_bytes)} bytes`);
figure(figures, 'No placement needs fewer than', words(plan.lower_bound_bytes), `${grouped(plan.lower_bound_bytes)} bytes`);
if (plan.host_bytes) figure(figures, 'Host memory', words(plan.host_bytes), `${grouped(plan.host_bytes)} bytes`);
figure(figures, 'Kernels', grouped(plan.kernels.name.length));
figure(figures, 'Buffers and workspaces', grouped(plan.buffers.name.length));
figure(figures, 'Predicted time', seconds(Number((1e6 * plan.seconds).toPrecision(3))));
const { program } = plan;
figure(figures, program.programs > 1 ? `Of ${program.programs} programs, the largest` : 'Program', `${program.name}${program.part ? `, ${program.part}` : ''}`, program.inputs);

readTheme();
const map = new PlanMap(plan);
themed(() => map.draw());
document.documentElement.dataset.ready = 'true';
